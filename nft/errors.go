package nft

import "errors"

// ErrUnsupported means that the kernel has no nftables, or lacks a part that a table needs;
// the error names what was asked for.
var ErrUnsupported = errors.New("the kernel has no nftables for this")

// ErrChanged means that the kernel's table is not the one that a change was made for:
// another program was faster. Read it again.
var ErrChanged = errors.New("the table was changed by another program")
