//go:build tools

// Package tools pins coredns for the testbed; nothing imports it.
package tools

import (
	_ "github.com/coredns/coredns"
)
