// Package warm keeps warm slots: network namespaces with a port on the bridge and a lease, which
// are made before a sandbox asks for one. A pool says how many it wants.
//
// [Plan] decides which slots are made, which are ended, and which namespaces are taken down; it is
// a pure function of a [View]. A [Keeper] has that done, by the book and by a helper process.
//
// It guarantees that a pool never has more slots than its bound, those on their way in and out
// counted; that slots leave a pool's addresses to sandboxes when these become few; and that it
// ends no slot which a sandbox claimed. It touches neither a namespace nor a link itself.
//
// The lease of a slot is reserved while the slot is made, bound once it is ready, and releasing
// while its namespace is taken down. A claim turns it into the sandbox's lease, under another id;
// that lease ends as any other, and the namespace goes with it.
package warm
