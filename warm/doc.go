// Package warm decides what becomes of the slots of pools: which are made, which are ended,
// and which namespaces are taken down. It guarantees that a pool never has more slots than
// its bound with those on their way in and out, that slots leave a pool's addresses to
// sandboxes when these become few, and that no slot which a sandbox claimed is ended by it.
// It changes nothing itself.
package warm
