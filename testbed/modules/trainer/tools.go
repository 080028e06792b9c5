//go:build tools

// Package tools pins Kubeflow Trainer for the testbed; nothing imports it.
package tools

import (
	_ "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager"
)
