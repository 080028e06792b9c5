//go:build tools

// Package tools pins k8s-device-plugin for the testbed; nothing imports it.
package tools

import (
	_ "github.com/NVIDIA/k8s-device-plugin/cmd/nvidia-device-plugin"
)
