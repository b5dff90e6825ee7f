package main

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// A filled store knows which addresses it must not give again.
type filled struct {
	store
	prefix netip.Prefix
	taken  int
	calls  atomic.Int64 // names the sandboxes
}

// takenOf lists the first addresses of a prefix after its own and the gateway's.
func takenOf(prefix netip.Prefix, n int) []netip.Addr {
	out := make([]netip.Addr, 0, n)
	for addr := gatewayOf(prefix).Next(); len(out) < n && prefix.Contains(addr); addr = addr.Next() {
		out = append(out, addr)
	}
	return out
}

func gatewayOf(prefix netip.Prefix) netip.Addr { return prefix.Masked().Addr().Next() }

// isTaken reports whether an address was there before the first call.
func (f *filled) isTaken(addr netip.Addr) bool {
	first := gatewayOf(f.prefix).Next().As4()
	a := addr.As4()
	offset := int(a[0])<<24 + int(a[1])<<16 + int(a[2])<<8 + int(a[3]) -
		(int(first[0])<<24 + int(first[1])<<16 + int(first[2])<<8 + int(first[3]))
	return offset >= 0 && offset < f.taken
}

// give allocates for a sandbox that nobody named before. An address that is
// not the peer's to give is an error: nothing is measured of a peer that was
// set up wrong.
func (f *filled) give(ctx context.Context) (sandbox string, addr netip.Addr, took time.Duration, err error) {
	sandbox = "sandbox-" + strconv.FormatInt(f.calls.Add(1), 10)
	began := time.Now()
	addr, err = f.allocate(ctx, sandbox)
	took = time.Since(began)
	if err == nil && (!f.prefix.Contains(addr) || f.isTaken(addr)) {
		err = fmt.Errorf("%s was given, of %s with %d taken", addr, f.prefix, f.taken)
	}
	return sandbox, addr, took, err
}

// An undoer has a quicker way back than a release, for what is not timed.
type undoer interface {
	undo(addr netip.Addr) error
}

// repeat times calls, at least one; what undoes each is not timed.
func (f *filled) repeat(ctx context.Context, calls int, most time.Duration) (a answer, err error) {
	for began := time.Now(); len(a.Took) < calls && (len(a.Took) == 0 || time.Since(began) < most); {
		sandbox, addr, took, err := f.give(ctx)
		if err != nil {
			return a, err
		}
		a.Took = append(a.Took, took)
		if u, ok := f.store.(undoer); ok {
			err = u.undo(addr)
		} else {
			err = f.release(ctx, sandbox, addr)
		}
		if err != nil {
			return a, err
		}
	}
	return a, nil
}

// A load is how much many callers do together: some allocations at the least,
// and then on for as long as told, but for a limit; 0 is none.
type load struct {
	least, limit int
	long         time.Duration
}

// begin returns what counts the allocations until the load is done. Many may
// range over it at once.
func (l load) begin() func(yield func(int) bool) {
	var begun atomic.Int64
	began := time.Now()
	return func(yield func(int) bool) {
		for {
			n := int(begun.Add(1)) - 1
			if n >= l.least && (time.Since(began) >= l.long || l.limit > 0 && n >= l.limit) || !yield(n) {
				return
			}
		}
	}
}

// grow has callers allocate, all at once, and keeps what they get. A call that
// fails is counted apart.
func (f *filled) grow(ctx context.Context, callers int, all load) answer {
	began, turns := time.Now(), all.begin()
	calls, failed := beside(callers, func(note func(error)) {
		for range turns {
			_, _, _, err := f.give(ctx)
			note(err)
		}
	})
	return answer{Calls: calls, Failed: failed, Elapsed: time.Since(began)}
}

// crowd has callers allocate and release by turns, all at once. A call that
// fails is counted apart, and its caller goes on.
func (f *filled) crowd(ctx context.Context, callers int, all load) answer {
	began, turns := time.Now(), all.begin()
	calls, failed := beside(callers, func(note func(error)) {
		for range turns {
			sandbox, addr, _, err := f.give(ctx)
			note(err)
			if err == nil {
				note(f.release(ctx, sandbox, addr))
			}
		}
	})
	return answer{Calls: calls, Failed: failed, Elapsed: time.Since(began)}
}

// beside runs callers at once, and counts what they note.
func beside(callers int, caller func(note func(error))) (calls, failed int) {
	var (
		wg       sync.WaitGroup
		good, no atomic.Int64
	)
	for range callers {
		wg.Go(func() {
			caller(func(err error) {
				if err != nil {
					no.Add(1)
				} else {
					good.Add(1)
				}
			})
		})
	}
	wg.Wait()
	return int(good.Load()), int(no.Load())
}
