package soak_test

import (
	"context"
	"testing"
	"time"

	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/realtest"
)

const (
	// remembered is how many freed addresses a pool knows, and rememberedMost what
	// they may take of the heap, in bytes. A row takes 2.2 KB.
	remembered     = 1 << 16
	rememberedMost = 16 << 20
	// largeLeast is from how many sandboxes on this shows anything: rows for all of them
	// are beyond all that is allowed.
	largeLeast = 2000
)

// F1: ever new sandboxes in an IPv6 /64 leave nothing: no row, and no more memory
// than what is remembered of freed addresses, however long it goes on.
func TestF1SoakOfALargePool(t *testing.T) {
	realtest.Long(t)
	d := startWith(t, large, 256)
	w := &work{client: d.client, began: time.Now()}
	w.sandbox(t, 0, 0)
	before := d.atRest()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	w.began = time.Now()
	for n := range workers / 4 {
		w.all.Go(func() { w.work(ctx, t, n+1) })
	}
	long := 2 * time.Second
	if *soaks > time.Minute {
		long = *soaks / 2
	}
	var full *sample // the first one behind as many sandboxes as are remembered
	var last sample
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for n := 1; time.Since(w.began) < long || w.count("release") < largeLeast; n++ {
		<-tick.C
		last = d.sample()
		last.sandboxes = w.count("release")
		if full == nil && last.sandboxes > remembered {
			now := last
			full = &now
		}
		if n%10 == 0 {
			t.Logf("%4.0fs: %v, %d sandboxes, %d rows", time.Since(w.began).Seconds(), last, last.sandboxes, d.rows())
		}
	}
	stop()
	w.all.Wait()
	w.refusedLittle(t)
	if grew := last.heap - before.heap; grew > rememberedMost+leftMost*last.sandboxes {
		t.Errorf("%d sandboxes, and the heap has grown by %v", last.sandboxes, mebibytes([]int{grew}))
	}
	if full != nil {
		made, grew := last.sandboxes-full.sandboxes, last.heap-full.heap
		t.Logf("%d more than are remembered, and the heap grew by %v", made, mebibytes([]int{grew}))
		if grew > leftMost*made+rememberedMost/4 {
			t.Errorf("%d sandboxes more than are remembered leave %v", made, mebibytes([]int{grew}))
		}
	}
	ended := time.Now()
	realtest.Eventually(t, patience, "the last row to go", func() bool { return d.rows() == 0 })
	t.Logf("the load ended at %v, the last row went %v later", ended.Sub(w.began), time.Since(ended))
	t.Logf("%d sandboxes; the book's file has %d bytes", last.sandboxes, d.size())
}

// rows is how many rows the book has.
func (d *daemon) rows() int {
	d.t.Helper()
	list, err := d.client.Leases(context.Background(), client.LeaseFilter{})
	if err != nil {
		d.t.Fatal(err)
	}
	return len(list.Leases)
}

// size is that of the book's file, in bytes.
func (d *daemon) size() int64 {
	d.t.Helper()
	now, err := d.client.Status(context.Background())
	if err != nil {
		d.t.Fatal(err)
	}
	return now.Book.Bytes
}
