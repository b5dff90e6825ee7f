package enforce

import (
	"context"
	"errors"
	"maps"

	"github.com/ipamd/ipamd/nft"
)

// mostTries bounds how often a table that others change meanwhile is repaired at once.
const mostTries = 5

// table names our table, for what needs no more of it.
var table = &nft.Table{Family: nft.Bridge, Name: TableName}

// change changes memory by fn, and then the kernel by what follows from it. A table that
// others may have changed is repaired before that: what fn adds is no repair. After an error
// memory has what should be, and Run makes it so. k.mu is held.
func (k *Keeper) change(ctx context.Context, fn func()) error {
	var err error
	if k.made && k.doubtful() {
		err = k.repair(ctx, k.held)
	}
	k.before = map[member]int{} // anew: a map that had many elements stays slow to iterate after clear
	fn()
	if err == nil {
		err = k.write(ctx)
	}
	if err != nil {
		k.held = false
		k.Again()
	}
	return k.status.note(noTable, err)
}

// doubtful reports that the kernel's table is not known to be the one that we wrote last.
func (k *Keeper) doubtful() bool { return !k.held || k.unverified.Load() }

// write makes the kernel's table what memory says, by what has changed in memory. k.mu is held.
func (k *Keeper) write(ctx context.Context) error {
	if k.doubtful() {
		return k.repair(ctx, false)
	}
	edits := k.edits()
	if len(edits) == 0 {
		return nil
	}
	k.writes++
	next := mark(k.cfg.Book.Epoch(), k.cfg.Book.Rev())
	edits = append(edits, nft.Edit{Set: sets[setBook], Del: []nft.Element{k.mark}, Add: []nft.Element{next}})
	err := k.conn.Edit(ctx, table, edits...)
	if errors.Is(err, nft.ErrChanged) { // another program was faster
		return k.repair(ctx, true)
	}
	if err == nil {
		k.mark = next
	}
	return err
}

// sets are those that our table may have, by name and without elements.
var sets = func() map[string]*nft.Set {
	out := map[string]*nft.Set{}
	for _, s := range frame(Policy{Mode: Enforce, DropUnleased: true, Trusted: []string{""}}).Sets {
		out[s.Name] = s
	}
	return out
}()

// repair reads the table and makes it what memory says. byOthers: what differs there is not
// what we have yet to write, so that it counts as repaired. k.mu is held.
func (k *Keeper) repair(ctx context.Context, byOthers bool) error {
	k.held = false
	for try := 1; ; try++ {
		unverified := k.unverified.Swap(false)
		want := Ruleset(k.cfg.Policy, k.world(k.cfg.Book.Epoch(), k.cfg.Book.Rev()))
		have, err := k.conn.Read(ctx, want)
		if err != nil {
			k.unverified.Store(k.unverified.Load() || unverified)
			return err
		}
		k.refused.keep(have)
		k.noteFresh(have, k.made)
		if have != nil && k.made && sameMark(have) == k.mark.Comment {
			// A mark that is behind the book alone is no difference.
			want.Set(setBook).Elements = []nft.Element{k.mark}
		}
		same := nft.Same(have, want)
		if !same {
			k.writes++
			err = k.conn.Apply(ctx, have, want)
		}
		switch {
		case err == nil:
			k.mark, k.held = want.Set(setBook).Elements[0], true
			if !same && byOthers {
				k.repaired(have)
			}
			k.made = true
			return nil
		case !errors.Is(err, nft.ErrChanged) || try == mostTries:
			return err
		}
	}
}

func sameMark(t *nft.Table) string {
	if s := t.Set(setBook); s != nil && len(s.Elements) == 1 {
		return s.Elements[0].Comment
	}
	return ""
}

// follow makes the table what book and ports say now. An error may also be that of a place that the kernel did not say.
func (k *Keeper) follow(ctx context.Context) error {
	reading := k.readings.Add(1)
	leases, rev := k.cfg.Book.Leases()
	k.mu.Lock()
	tries := firstTries
	if k.made {
		tries = 1
	}
	k.mu.Unlock()
	at, unsaid := k.locator().places(ctx, leases, tries)
	if ctx.Err() == nil { // else the caller did not wait for it
		unsaid = k.status.note(noPlace, unsaid)
	}
	return errors.Join(unsaid, k.changeAll(ctx, func() {
		k.take()
		k.compare(leases, rev, at, reading)
	}))
}

// take takes in the ports, and what no port may use: the gateways of the pools, and what the bridges are.
// k.mu is held.
func (k *Keeper) take() {
	k.takePorts(k.cfg.Kernel.Ports())
	k.takeBridges(k.cfg.Book.Pools(), k.cfg.Kernel.Bridges())
}

// followPorts takes in what ports and addresses of bridges there are, and repairs what others changed, as far as that
// does not need the book. It takes a small part of follow's time.
func (k *Keeper) followPorts(ctx context.Context) error { return k.changeAll(ctx, k.take) }

// changeAll is change, and behind it what else follows from memory for all bridges and ports. It is called by Start
// and Run, one after the other, and does all that there is to do of each cause: a success is one for all.
func (k *Keeper) changeAll(ctx context.Context, fn func()) error {
	k.mu.Lock()
	err := k.change(ctx, fn)
	k.refused.readPending()
	wrong, fresh := k.wrong(maps.Keys(k.ports)), k.takeFresh(err)
	k.mu.Unlock()
	bridges := k.status.note(bridgeLearn, k.setBridges(ctx))
	groups := k.status.note(portGroups, setGroups(ctx, k.cfg.Kernel, wrong))
	if err == nil {
		err = k.status.note(portLearned, k.unlearn(ctx, fresh))
	}
	return errors.Join(err, bridges, groups)
}
