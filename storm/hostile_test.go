package storm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/realtest"
)

// A hostile one is a guest that is root in a namespace of its own, a tenant that writes
// the labels of its containers, a local user who may read, a runtime, or what answers
// in place of the owner. It attacks in a way of its own first, and then at random.
type hostile struct {
	*world
	r           *rand.Rand
	all         []attack        // the first one comes first
	least, most time.Duration   // that an attack lasts
	over        <-chan struct{} // it ends
	victims     func() []life   // who else lives
}

// An attack lasts until ctx ends, and leaves nothing behind.
type attack struct {
	name     string
	do       func(h *hostile, ctx context.Context) error
	confined func(*confined) error // of those that go on in a process of their own: what that does
	takes    time.Duration         // that ipamd would take to fall for it
}

var hostilities = []attack{
	behindAPort("a guest with addresses that do not stand still", (*confined).restless),
	behindAPort("a guest with hundreds of links", (*confined).manyLinks),
	behindAPort("a guest with 64 KiB of names of a link", (*confined).manyNames),
	behindAPort("a guest that answers with a neighbour's MAC", (*confined).frame),
	behindAPort("a guest that claims what others have", (*confined).claim),
	behindAPort("a guest that sends malformed ARP", (*confined).malformed),
	{name: "a guest at a tap that two incarnations have", do: (*hostile).sameTap},
	{name: "a tenant with another's labels", do: (*hostile).anothersLabels},
	{name: "a tenant with an address that is none", do: (*hostile).unreadable},
	{name: "a tenant with hundreds of addresses", do: (*hostile).manyAddresses},
	{name: "a tenant with a large record", do: (*hostile).largeRecord},
	atTheSocket("a reader that asks for what costs much", readerUID, (*confined).costly),
	atTheSocket("a reader that reads slowly", readerUID, (*confined).slow),
	atTheSocket("a runtime with large labels", runtimeUID, (*confined).largeLeases),
	atTheSocket("a runtime that cancels what never was", runtimeUID, (*confined).tombstones),
	{name: "a runtime with another's container", do: (*hostile).anothersContainer, takes: 4 * ownerGrace},
	{name: "a runtime with odd namespaces", do: (*hostile).oddNetns},
	{name: "an owner that lies", do: (*hostile).strayOwner},
	{name: "an impostor of the owner", do: (*hostile).impostor},
}

// atOnce is an actor for each attack, which begins with that and goes on with any.
func atOnce() (actors [][]attack) {
	for i := range hostilities {
		actors = append(actors, slices.Concat(hostilities[i:], hostilities[:i]))
	}
	return actors
}

// attacked is how an attack is counted, by its name.
const attacked = "hostile: "

func (h *hostile) act() {
	ctx, cancel := context.WithCancel(h.ctx)
	defer cancel()
	go func() {
		select {
		case <-h.over:
			cancel()
		case <-ctx.Done():
		}
	}()
	for a := h.all[0]; ctx.Err() == nil; a = h.all[h.r.IntN(len(h.all))] {
		attacking, end := context.WithTimeout(ctx, max(a.takes, between(h.r, h.least, h.most)))
		err := a.do(h, attacking)
		end()
		h.rec.counted(attacked + a.name)
		if err != nil {
			h.rec.strange("hostile, %s: %v", a.name, err)
			return
		}
		if ctx.Err() == nil {
			h.rest(h.r, time.Millisecond, 500*time.Millisecond)
		}
	}
}

// besiege lets hostile actors act until stop is called, each with attacks of its own.
func (w *world) besiege(seed uint64, actors [][]attack, least, most time.Duration) (stop func()) {
	over := make(chan struct{})
	var acting sync.WaitGroup
	for i, all := range actors {
		h := &hostile{world: w, r: rand.New(rand.NewPCG(seed, uint64(1000+i))), all: all,
			least: least, most: most, over: over, victims: w.rec.living}
		acting.Go(h.act)
	}
	stop = sync.OnceFunc(func() {
		close(over)
		acting.Wait()
	})
	w.t.Cleanup(stop)
	return stop
}

// siege has hostile ones act while the rest stands still and a few come and go: one
// after the other, and then all at once until stop is called. Who lives stays where it
// is, no process ends, and no innocent one is named. Beside each attack who comes waits
// no longer than three times as long as without one, or ten times where the machine is
// shared. Something else spoils a round now and then, so each attack has a few, with a
// quiet one before.
func (w *world) siege(r *rand.Rand) (stop func()) {
	w.t.Helper()
	const rounds = 4
	enough, times := least, time.Duration(10)
	if *alone {
		enough, times = 60, 3
	}
	message := len(w.log())
	middle := func(what string) time.Duration {
		all := w.served(r, what, enough)
		return all[len(all)/2].Round(time.Microsecond)
	}
	quiet := middle("quiet")
	for i, a := range hostilities {
		var waits []string
		for round := range rounds {
			if round > 0 {
				quiet = middle("quiet")
			}
			relieve := w.besiege(*seed+uint64(rounds*i+round), [][]attack{{a}}, patience, 2*patience)
			w.rest(r, 200*time.Millisecond, 400*time.Millisecond)
			end := w.rec.now() + a.takes
			beside := middle("beside")
			if left := end - w.rec.now(); left > 0 {
				w.rest(r, left, left+time.Second)
			}
			relieve()
			waits = append(waits, fmt.Sprintf("%v, without %v", beside, quiet))
			if beside <= times*quiet {
				break
			}
		}
		w.t.Logf("an allocation beside %s takes %s", a.name, strings.Join(waits, "; "))
		if len(waits) == rounds {
			w.t.Errorf("beside %s an allocation takes more than %d times as long as without", a.name, times)
		}
	}
	look := func() {
		w.allAreInTheirPlaces()
		w.processesLive()
		w.noPortIsAccused(message)
	}
	look()
	stop = w.besiege(*seed+1, atOnce(), siegeLasts, 2*siegeLasts)
	w.rest(r, 2*time.Second, 3*time.Second)
	look()
	return stop
}

// siegeLasts is the shortest time that one of the attacks at once lasts, if none stops it.
const siegeLasts = 2 * patience

// least is how many sandboxes tell how long one waits.
const least = 20

// served is how long each of up to n sandboxes waits for an address, refusals included,
// in ascending order. Each releases at once. Where they wait long it is fewer.
func (w *world) served(r *rand.Rand, what string, n int) (all []time.Duration) {
	w.t.Helper()
	const long = 6 * time.Second
	start := w.rec.now()
	for i := 0; i < least || i < n && w.rec.now()-start < long; i++ {
		uid := fmt.Sprint(what, "-", i)
		var g grant
		began := w.rec.now()
		err := w.persist(r, "allocate: "+what, func(ctx context.Context) error {
			g = grant{asked: w.rec.now(), uid: uid}
			reply, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: uid})
			if err == nil {
				l := reply.Leases[0]
				g.answered, g.addr, g.lease, g.existing, g.early = w.rec.now(), netip.MustParseAddr(l.Address), l.ID, reply.Existing, reply.EarlyReuse
			}
			return err
		})
		if err == nil {
			all = append(all, g.answered-began)
			w.rec.add(func(h *history) { h.grants = append(h.grants, g) })
			err = w.persist(r, "release: "+what, func(ctx context.Context) error {
				_, err := w.client.Release(ctx, g.lease, api.ReleaseRequest{})
				return err
			})
		}
		if err != nil {
			w.t.Fatalf("%s: %v", uid, err)
		}
		w.rest(r, time.Millisecond, 5*time.Millisecond)
	}
	slices.Sort(all)
	return all
}

// allAreInTheirPlaces compares who lives by the actors, the kernel and the book.
func (w *world) allAreInTheirPlaces() (bound []api.Lease) {
	w.t.Helper()
	want := make(map[netip.Addr]string) // the lease there
	for _, l := range w.rec.living() {
		want[l.addr] = l.lease
		got, err := addresses(l.netns)
		if err != nil || !slices.Equal(got, []netip.Addr{l.addr}) {
			w.t.Errorf("the kernel has %v in %s, %v: want %s", got, l.netns, err, l.addr)
		}
	}
	list, err := w.client.Leases(w.ctx, client.LeaseFilter{State: string(api.Bound)})
	if err != nil {
		w.t.Fatal(err)
	}
	list.Leases = slices.DeleteFunc(list.Leases, func(l api.Lease) bool { return strings.HasPrefix(l.Sandbox, recordsOf) })
	for _, l := range list.Leases {
		addr := netip.MustParseAddr(l.Address)
		if want[addr] != l.ID {
			w.t.Errorf("the book has %s at %s by lease %s, and lease %q lives there", l.Sandbox, addr, l.ID, want[addr])
		}
		delete(want, addr)
	}
	for addr, lease := range want {
		w.t.Errorf("lease %s lives at %s, and the book has no bound lease there", lease, addr)
	}
	return list.Leases
}

// processesLive looks for containers whose process has ended.
func (w *world) processesLive() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(namespaces.WithNamespace(w.ctx, namespaces.Default), patience)
	defer cancel()
	list, err := w.ctrd.TaskService().List(ctx, &tasks.ListTasksRequest{})
	if err != nil {
		w.t.Fatal(err)
	}
	live := make(map[string]bool)
	for _, one := range list.Tasks {
		live[one.ID] = one.Status == task.Status_RUNNING
	}
	for _, id := range w.containers() {
		if !live[id] {
			w.t.Errorf("the process of container %s has ended", id)
		}
	}
}

// releasesEnd waits for the removal of all that lived, as the kernel and containerd
// have it, and then for the end of their releases.
func (w *world) releasesEnd(of []life) {
	w.t.Helper()
	most := siegeLasts / 2 // a label that delayed a release would stand for the whole siege
	if *alone {
		most = 10 * time.Second
	}
	lived, leases := make(map[string]bool), make(map[string]bool)
	for _, l := range of {
		lived["port"+filepath.Base(l.netns)], leases[l.lease] = true, true
	}
	w.eventually("all that lived is removed", func() bool {
		w.sweep()
		ports, err := w.plugged()
		return err == nil && !slices.ContainsFunc(ports, func(name string) bool { return lived[name] }) && len(w.containers()) == 0
	})
	removed := w.rec.now()
	var left []api.Lease
	defer func() {
		for _, l := range left[:min(len(left), 3)] {
			w.t.Logf("%s of %s%s", l.Address, l.Sandbox, w.blockers(w.ctx, l))
		}
	}()
	realtest.Eventually(w.t, most, "the releases to end, beside hostile ones", func() bool {
		list, err := w.client.Leases(w.ctx, client.LeaseFilter{State: string(api.Releasing)})
		if err == nil {
			left = slices.DeleteFunc(list.Leases, func(l api.Lease) bool { return !leases[l.ID] })
		}
		return err == nil && len(left) == 0
	})
	w.t.Logf("%d releases end %v after the removal, beside hostile ones", len(of), (w.rec.now() - removed).Round(time.Millisecond))
}

// log is what ipamd has logged.
func (w *world) log() []byte {
	w.t.Helper()
	log, err := os.ReadFile(w.daemon.path("log"))
	if err != nil {
		w.t.Fatal(err)
	}
	return log
}

// noPortIsAccused looks into all that ipamd says for an innocent port.
func (w *world) noPortIsAccused(since int) {
	w.t.Helper()
	innocent := make(map[string]netip.Addr)
	for _, l := range w.rec.living() {
		innocent["port"+filepath.Base(l.netns)] = l.addr
	}
	words := strings.Split(string(w.log()[since:]), "\n")
	add := func(what any) {
		text, err := json.Marshal(what)
		if err != nil {
			w.t.Fatal(err)
		}
		words = append(words, string(text))
	}
	var doctor *api.DoctorReply
	w.eventually("the doctor answers", func() (is bool) { // beside guests that hold the kernel up a reading may end by its time
		var err error
		doctor, err = w.client.Doctor(w.ctx)
		return err == nil
	})
	for _, f := range doctor.Findings {
		if f.Kind != packetsRefused { // each has sent what is not its own
			add(f)
		}
	}
	list, err := w.client.Leases(w.ctx, client.LeaseFilter{State: string(api.Quarantined)})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, l := range list.Leases {
		add(l)
	}
	if faults := accused(words, innocent); len(faults) > 0 {
		w.t.Errorf("%d innocent ones are named:\n%s", len(faults), report(faults))
	}
}

var portName = regexp.MustCompile(`\bport[0-9]+\b`)

// notes are what is said where a frame names the MAC of another port than it came by.
var notes = []string{"forged", "it says that the address is at"}

// accused lists the texts that name an innocent port beside addresses that are not its
// own, unless they say that this is what a frame claims.
func accused(words []string, innocent map[string]netip.Addr) (faults []string) {
	for _, text := range words {
		if slices.ContainsFunc(notes, func(note string) bool { return strings.Contains(text, note) }) {
			continue
		}
		in := addressesIn(text)
		for _, name := range portName.FindAllString(text, -1) {
			if own, ok := innocent[name]; ok && len(in) > 0 && !slices.Contains(in, own) {
				faults = append(faults, fmt.Sprintf("accused: %s, which has %s: %.1000s", name, own, text))
				break
			}
		}
	}
	return faults
}

var dotted = regexp.MustCompile(`\b[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+\b`)

// addressesIn are those of the pool that a text names.
func addressesIn(text string) (out []netip.Addr) {
	for _, word := range dotted.FindAllString(text, -1) {
		if a, err := netip.ParseAddr(word); err == nil && poolPrefix.Contains(a) {
			out = append(out, a)
		}
	}
	return out
}

// TestHostileAccused: what names an innocent one is found, and what does not is not.
func TestHostileAccused(t *testing.T) {
	innocent := map[string]netip.Addr{"port1": two}
	for text, want := range map[string]string{
		"10.8.0.3 is answered for at port1":                                                          "accused",
		"10.8.0.3 is answered for at port11":                                                         "",
		"10.8.0.3 is answered for at port2":                                                          "",
		"10.8.0.2 is answered for at port2, and port1 has it":                                        "",
		"10.8.0.3 is answered for by the MAC of port1, which is forged":                              "",
		"10.8.0.3 at port2: it says that the address is at 02:00:00:00:00:01, which is behind port1": "",
		"port1 came": "",
	} {
		expect(t, accused([]string{text}, innocent), want)
	}
}
