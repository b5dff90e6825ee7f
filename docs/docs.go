// Package docs holds the documents that programs show.
package docs

import _ "embed"

// operations is the page for operators: each kind of finding and each alert has
// a section.
//
//go:embed OPERATIONS.md
var operations string
