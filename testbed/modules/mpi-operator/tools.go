//go:build tools

// Package tools pins the MPI operator for the testbed; nothing imports it.
package tools

import (
	_ "github.com/kubeflow/mpi-operator/cmd/mpi-operator"
)
