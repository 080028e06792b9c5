//go:build tools

// Package tools pins helm for the testbed; nothing imports it.
package tools

import (
	_ "helm.sh/helm/v4/cmd/helm"
)
