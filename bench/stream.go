package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/routes"
)

// inTable is how many routes a gateway's table has.
const inTable = 100_000

// stream is goal 17: what the stream of changes costs its readers and the callers beside
// them, and a gateway's table.
func stream(r *run) func() []ratio {
	table, route := tableOf(inTable)
	quiet, full := r.start(setup{ports: r.ports}), r.start(setup{book: r.full()})
	c := quiet.caller()
	byTurns(r.calls, c.call()) // warm
	seen := quiet.watch()
	return func() []ratio {
		echo := byTurns(r.calls, r.yardR())[0].do.p50()
		var late sample
		for range r.calls {
			check(c.allocate())
			late = append(late, seen(c.held.Revision))
			check(c.release())
		}
		_, alone := crowd(r.crowd, quiet.callers(r.callers)...)
		leave := quiet.audience()
		_, watched := crowd(r.crowd, quiet.callers(r.callers)...)
		leave()
		var replay float64
		var changes int
		busy := onProcessor(full.pid(), func() { replay, changes = full.replay() })
		update, lookup := timed(inTable, func(i int) {
			route.Revision++
			route.Sandbox, route.Addr = sandboxOf(i), addrOf(i)
			check(table.Apply("e", route))
		}), timed(inTable, func(i int) { table.Lookup(names[i]) })
		return []ratio{took(late.p50(), echo), rates(watched, alone), rates(replay, 200_000), took(busy/time.Duration(changes), 5*time.Microsecond),
			took(update, time.Microsecond), took(lookup, 100*time.Nanosecond)}
	}
}

// names are made before anything is timed.
var names = func() []string {
	all := make([]string, inTable)
	for i := range all {
		all[i] = fmt.Sprintf("sandbox-%06d", i)
	}
	return all
}()

func sandboxOf(i int) string { return names[i] }
func addrOf(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
}

// tableOf is a gateway's table with n routes, and the last of them.
func tableOf(n int) (*routes.Table, routes.Route) {
	list := routes.List{Epoch: "e", Revision: int64(n)}
	var last routes.Route
	for i := range n {
		last = routes.Route{Sandbox: names[i], UID: names[i], Interface: "eth0", Attempt: 1, Lease: "l", Addr: addrOf(i), State: api.Bound, Revision: int64(i + 1)}
		list.Routes = append(list.Routes, last)
	}
	table := &routes.Table{}
	check(table.Replace(list))
	return table, last
}

// timed is what one of n calls takes of a processor, whatever else runs.
func timed(n int, call func(i int)) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	spent := func() time.Duration {
		var t unix.Timespec
		check(unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t))
		return time.Duration(t.Nano())
	}
	began := spent()
	for i := range n {
		call(i)
	}
	return (spent() - began) / time.Duration(n)
}

// watch follows the daemon. The function that it returns waits for a revision and returns
// how long after its call that came.
func (d *daemon) watch() (seen func(revision int64) time.Duration) {
	type arrival struct {
		revision int64
		at       time.Time
	}
	came := make(chan arrival, 1<<16)
	ctx, cancel := context.WithCancel(d.ctx)
	d.Cleanup(cancel)
	go func() { // ends with ctx
		for u := range d.client.Watch(ctx, client.WatchFilter{}) {
			if u.Event != nil && u.Event.Type == api.EventChange {
				select {
				case came <- arrival{u.Event.Revision, time.Now()}:
				default: // none waits: it is beside a crowd
				}
			}
		}
	}()
	return func(revision int64) time.Duration {
		began, give := time.Now(), time.After(patience)
		for {
			select {
			case a := <-came:
				if a.revision >= revision {
					return max(0, a.at.Sub(began))
				}
			case <-give:
				d.Fatalf("revision %d does not come", revision)
			}
		}
	}
}

// open starts a watch by hand: what a reader costs that does nothing with what it reads.
func (d *daemon) open(query string) net.Conn {
	conn := must(net.Dial("unix", filepath.Join(d.folder, "sock")))
	check(conn.SetDeadline(time.Now().Add(d.limit)))
	must(fmt.Fprintf(conn, "GET /v1/watch%s HTTP/1.1\r\nHost: ipamd\r\n\r\n", query))
	return conn
}

// audience has many watchers, of which one in a hundred never reads, until leave.
func (d *daemon) audience() (leave func()) {
	var all []net.Conn
	var reading sync.WaitGroup
	for i := range d.watchers {
		conn := d.open("")
		all = append(all, conn)
		must(conn.Read(make([]byte, 1024))) // it has begun
		if i%100 > 0 {
			reading.Go(func() { _, _ = io.Copy(io.Discard, conn) }) // until it is closed
		}
	}
	leave = sync.OnceFunc(func() {
		for _, conn := range all {
			conn.Close()
		}
		reading.Wait()
	})
	d.Cleanup(leave)
	return leave
}

// replay reads the changes by which the book became full, or as many of the last, where goals
// before have changed it so often that the oldest are not kept. It returns changes a second, and
// how many.
func (d *daemon) replay() (rate float64, changes int) {
	status := must(d.client.Status(d.ctx))
	since := max(0, status.Revision-int64(d.leases))
	conn := d.open(fmt.Sprintf("?epoch=%s&since=%d&kinds=lease,attempt,pool,book", status.Epoch, since))
	defer conn.Close()
	began := time.Now()
	buf, last := make([]byte, 64<<10), fmt.Appendf(nil, `"change":{"revision":%d,`, status.Revision)
	var tail []byte
	for {
		n := must(conn.Read(buf))
		changes += bytes.Count(buf[:n], []byte(`"change":{"revision":`))
		if tail = append(tail, buf[:n]...); bytes.Contains(tail, last) {
			return float64(changes) / time.Since(began).Seconds(), changes
		}
		if bytes.Contains(tail, []byte(`"code":`)) { // it ends with an error, or begins with one
			d.Fatalf("the replay ends behind %d changes: %q", changes, tail)
		}
		tail = append(tail[:0], tail[max(0, len(tail)-len(last)):]...)
	}
}
