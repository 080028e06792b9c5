//go:build tools

// Package tools pins Kubeflow's training-operator for the testbed; nothing imports it.
package tools

import (
	_ "github.com/kubeflow/training-operator/cmd/training-operator.v1"
)
