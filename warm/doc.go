// Package warm keeps the slots of pools as the pools want them: [Plan] decides which are made,
// which are ended, and which namespaces are taken down, and a [Keeper] has it done by the book
// and by a helper. It guarantees that a pool never has more slots than
// its bound with those on their way in and out, that slots leave a pool's addresses to
// sandboxes when these become few, and that no slot which a sandbox claimed is ended by it.
// It touches neither a namespace nor a link itself.
package warm
