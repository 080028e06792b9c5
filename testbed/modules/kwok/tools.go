//go:build tools

// Package tools pins kwok for the testbed; nothing imports it.
package tools

import (
	_ "sigs.k8s.io/kwok/cmd/kwok"
)
