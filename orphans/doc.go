// Package orphans finds sandboxes that have containers although their owner says that
// they are gone, and ends them if it is configured to. Nothing else in ipamd signals or deletes
// a container.
//
// A sandbox is an orphan by its owner's word alone, never because a list lacks it. Few
// are ended within an hour before a person has confirmed them. A lease is released after
// the last container of its sandbox was deleted, and confirmed by package watchdog like
// any other.
//
// Incident behind it: a cleanup loop took a sandbox for an orphan that a lagging index
// did not list, and released its address before it removed the container.
package orphans
