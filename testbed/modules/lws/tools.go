//go:build tools

// Package tools pins LeaderWorkerSet's controller for the testbed; nothing imports it.
package tools

import (
	_ "sigs.k8s.io/lws/cmd"
)
