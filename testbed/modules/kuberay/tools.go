//go:build tools

// Package tools pins KubeRay's operator for the testbed; nothing imports it.
package tools

import (
	_ "github.com/ray-project/kuberay/ray-operator"
)
