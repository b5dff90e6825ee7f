package enforce

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ipamd/ipamd/nft"
)

// running has a keeper run until the test ends, or stop is called.
func running(t *testing.T, k *Keeper) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { _ = k.Run(ctx) })
	stop = func() { cancel(); all.Wait() }
	t.Cleanup(stop)
	return stop
}

// TestE4TheTableIsReadWhileSomethingFails: what another program did is undone with the next reading of the whole table
// though no news of it came, also while the kernel refuses something else for good.
func TestE4TheTableIsReadWhileSomethingFails(t *testing.T) {
	t.Parallel()
	w := new(refusing)
	w.bind("a")
	w.groups = errors.New("no groups")
	k, _ := w.keeper(t)
	k.cfg.Every = 100 * time.Millisecond
	if err := k.Start(t.Context()); !errors.Is(err, w.groups) {
		t.Fatal(err)
	}
	if err := k.conn.Remove(t.Context(), nft.Bridge, TableName); err != nil {
		t.Fatal(err)
	}
	running(t, k)
	for end := time.Now().Add(10 * time.Second); k.Status().Repairs == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the table is not read")
		}
	}
}

// TestE4WhatFailsIsNoComparisonAfterTheOther: while something fails for good, comparisons that take long have their pause as
// ever, and what needs none is tried again meanwhile.
func TestE4WhatFailsIsNoComparisonAfterTheOther(t *testing.T) {
	t.Parallel()
	const comparison = 400 * time.Millisecond // 3.6 s of pause
	w := new(refusing)
	w.bind("a")
	w.groups = errors.New("no groups")
	k, _ := w.keeper(t)
	if err := k.Start(t.Context()); !errors.Is(err, w.groups) {
		t.Fatal(err)
	}
	w.takes, w.rounds, w.set = comparison, nil, 0
	stop := running(t, k)
	time.Sleep(6 * comparison)
	stop()
	if n := len(w.rounds); n != 1 {
		t.Errorf("within %v there were %d comparisons", 6*comparison, n)
	}
	if w.set <= len(w.rounds) {
		t.Errorf("it was tried %d times, in %d comparisons and beside them", w.set, len(w.rounds))
	}
}
