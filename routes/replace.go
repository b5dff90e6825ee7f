package routes

import (
	"net/netip"
	"slices"
)

// A List is all that the daemon has at one revision.
type List struct {
	Epoch    string
	Revision int64
	Routes   []Route
}

// Replace makes the table what the list says, at once: look-ups see it before or
// after. Of the same epoch, news above the list's revision stays, unless [ErrList]
// has asked for a list because of it: a list may be long on its way. Give those of several
// epochs in the order in which they were asked for.
func (t *Table) Replace(l List) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.Epoch == t.epoch && l.Revision < t.position {
		return ErrOldList
	}
	old := t.cells
	if l.Epoch != t.epoch {
		old = nil
	}
	ahead, early := t.ahead, t.begin(l.Epoch)
	t.position, t.latest, t.word = l.Revision, l.Revision, t.now()
	t.cells, t.ahead = make(map[netip.Addr]*cell, len(l.Routes)), make(map[netip.Addr]lead)
	t.kept, t.sum = 0, 0
	x := newIndex(len(l.Routes))
	newer := func(addr netip.Addr) bool {
		c := old[addr]
		return c != nil && c.revision > l.Revision && !ahead[addr].doubted
	}
	for i := range l.Routes {
		r := &l.Routes[i]
		if c := cellOf(r); c.kept && !newer(r.Addr) {
			if twice := t.cells[r.Addr]; twice != nil {
				x.drop(twice.sandbox, r)
				t.count(*twice, -1)
			}
			t.cells[r.Addr] = &c
			x.put(r)
			t.count(c, 1)
		}
	}
	before := t.index.Load()
	for addr, c := range old {
		if !newer(addr) {
			continue
		}
		t.cells[addr], t.ahead[addr], t.latest = c, ahead[addr], max(t.latest, c.revision)
		if c.kept {
			r, _ := before.at(c.sandbox, addr)
			x.put(&r)
			t.count(*c, 1)
		}
	}
	t.index.Store(x)
	t.announce(before)
	for _, r := range early {
		_, _ = t.push(r) // no more are kept than may be ahead
	}
	t.changed.Send()
	return nil
}

// announce reports what a list changed: first all that goes, then what comes. In between
// a sandbox that got another address has none, and no address has two sandboxes.
func (t *Table) announce(before *index) {
	if t.notify == nil {
		return
	}
	for sandbox := range before.all() {
		has := t.Routes(sandbox)
		stays := slices.DeleteFunc(has, func(r Route) bool {
			_, had := before.at(sandbox, r.Addr)
			return !had
		})
		if len(stays) < before.len(sandbox) {
			t.notify(sandbox, stays)
		}
	}
	for sandbox := range t.index.Load().all() {
		t.report(sandbox)
	}
}
