package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// R6: a lease's container has lost its record, and its shim is frozen, so
// it is not known whether its task runs. Every pass tries to reap the lease
// and keeps it, doctor reports it, and it ends once the runtime can answer.
func TestR6ReapThatFails(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), hasty, func(c *config.Config) { c.Runtime.Timeout = config.Duration(200 * time.Millisecond) })
		a := w.box(d, "a")
		d.FreezeShim(t, "default", "a")
		d.DeleteRecord(t, "default", "a")
		a.port.Close()
		whole := func() (r api.Report) { // while the runtime answers all that it can
			t.Helper()
			realtest.Eventually(t, wait, "a pass that every witness answers in time", func() bool { r = w.pass(); return r.Complete })
			return r
		}
		whole() // misses it first
		for range 4 {
			r := whole()
			if len(r.Actions) != 1 || r.Actions[0].Kind != "reap" || r.Actions[0].Result != "skipped" ||
				!strings.Contains(r.Actions[0].Reason, "container default/a could not be asked about") || r.Absent != 1 {
				t.Errorf("a pass: %+v", r)
			}
		}
		if !slices.Contains(w.findings(), "bound_unseen "+a.held.Address) || w.state(a.held.Address) != api.Bound {
			t.Errorf("doctor says %v", w.findings())
		}
		d.ThawShim(t, "default", "a")
		d.KillShim(t, "default", "a")
		realtest.Eventually(t, wait, "the lease to end", func() bool {
			w.pass()
			return w.is(a.held.Address, api.Cooling)
		})
		if got := ends(w, a); got != "reaped, removal_confirmed" && got != "removed, removal_confirmed" {
			t.Errorf("it ended by: %s", got)
		}
	})
}

// R11: the machine boots again. rt0 is empty, containerd has its records and
// no task. Nothing is released for that. Records that were deleted while the
// daemon was down, and those that are deleted later, end their leases one by
// one, far beyond the brake; what they held can be given after its cooldown.
func TestR11Reboot(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), hasty, func(c *config.Config) {
			c.Reconcile.Misses = 3
			c.Allocation.Cooldown, c.Allocation.CooldownMin = config.Duration(200*time.Millisecond), config.Duration(200*time.Millisecond)
		})
		const all, dead = 253, 250
		name := func(i int) string { return fmt.Sprint("s", i) }
		var held []api.Lease
		for i := range all {
			l := w.bind(w.allocate(name(i)).Leases[0], name(i))
			held = append(held, l)
			d.Create(t, ctrdtest.Spec{ID: name(i), Labels: labels(name(i), l.Address)})
		}
		w.stopDaemon()
		const other = "00000000-0000-4000-8000-000000000001"
		w.edit(`UPDATE book SET boot_id = ?1; UPDATE leases SET created_boot_id = ?1, since_boot_id = ?1;
			UPDATE changes SET boot_id = ?1; UPDATE pools SET created_boot_id = ?1`, other)
		w.start()
		count := func(s api.State) int {
			t.Helper()
			list, err := w.client.Leases(ctx, client.LeaseFilter{State: string(s)})
			if err != nil {
				t.Fatal(err)
			}
			return len(list.Leases)
		}
		for range 4 {
			if r := w.pass(); r.Absent != 0 || len(r.Actions) != 0 {
				t.Fatalf("a pass after the boot: %+v", r)
			}
		}
		if n := count(api.Bound); n != all {
			t.Fatalf("after the boot %d leases are bound", n)
		}
		w.stopDaemon()
		for i := range dead / 2 {
			d.Delete(t, "default", name(i))
		}
		w.watched()
		for range 3 { // no person's word: the runtime's, by id, is enough
			if r, err := w.client.Reconcile(ctx, api.ReconcileRequest{}); err != nil || r.Report.Held != nil {
				t.Errorf("a pass: %+v, %v", r, err)
			}
		}
		for i := dead / 2; i < dead; i++ {
			d.Delete(t, "default", name(i))
		}
		realtest.Eventually(t, within, "the dead to be released", func() bool { return count(api.Bound)+count(api.Releasing) == all-dead })
		for i, why := range map[int]string{0: "reaped, removal_confirmed", dead - 1: "removed, removal_confirmed"} {
			if got := ends(w, &box{held: held[i]}); got != why {
				t.Errorf("%s ended by: %s", name(i), got)
			}
		}
		for i := range dead {
			var r *api.AllocateReply
			realtest.Eventually(t, wait, "an address to be given", func() (ok bool) {
				var err error
				r, err = w.client.Allocate(ctx, api.AllocateRequest{Sandbox: fmt.Sprint("new", i)})
				return err == nil
			})
			if r.EarlyReuse {
				t.Errorf("%s was given before its time", r.Leases[0].Address)
			}
		}
		if n, m := count(api.Bound), count(api.Reserved); n != all-dead || m != dead {
			t.Errorf("%d are bound, %d reserved", n, m)
		}
	})
}

// C4 on the way out: a stopped container whose record is there keeps its
// released lease from cooling, and is named; when the record goes, events say
// so, and no pass is made.
func TestC4StoppedContainerKeepsItsRelease(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), slow)
		a := w.box(d, "a")
		d.StopTask(t, "default", "a")
		a.port.Close()
		if _, err := w.client.Release(ctx, a.held.ID, api.ReleaseRequest{}); err != nil {
			t.Fatal(err)
		}
		realtest.Eventually(t, wait, "the stopped container to be all that is left", func() bool {
			now, err := w.client.Lease(ctx, a.held.ID)
			return err == nil && now.Lease.State == api.Releasing && len(now.Blockers) == 1 && now.Blockers[0].Kind == "container" &&
				strings.Contains(now.Blockers[0].Detail, "default/a is there (task stopped)")
		})
		r, err := w.client.Release(ctx, a.held.ID, api.ReleaseRequest{Wait: "100ms"})
		if err != nil || r.Lease.State != api.Releasing {
			t.Errorf("waited for: %+v, %v", r, err)
		}
		d.Delete(t, "default", "a")
		w.becomes(a.held.Address, api.Cooling)
	})
}

// C6 on the way out: the labels of one container cannot be read, and it is not known
// where it lives, so it is not known what it uses. No lease ends, be it released, removed, absent or past
// its deadline, not by a person's word either; doctor names the container. When
// it is gone, all of them end.
func TestC6UnreadableLabelFreesNothing(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), hasty)
		w.loseHomes()
		released, removed := w.box(d, "released"), w.box(d, "removed")
		absent := w.bind(w.allocate("absent").Leases[0], "never-made")
		late, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "late", BindWithin: "1s"})
		if err != nil {
			t.Fatal(err)
		}
		d.Run(t, ctrdtest.Spec{ID: "odd", Labels: labels("x", "10.8.64.999")})
		realtest.Eventually(t, wait, "the silence", func() bool { return slices.Contains(w.findings(), "witness_silent") })
		for _, b := range []*box{released, removed} {
			b.port.Close()
			d.Delete(t, "default", b.name)
		}
		if r, err := w.client.Release(ctx, released.held.ID, api.ReleaseRequest{Wait: "100ms"}); err != nil || r.Lease.State != api.Releasing {
			t.Errorf("release: %+v, %v", r, err)
		}
		overdue := "reserved_past_deadline " + late.Leases[0].Address
		realtest.Eventually(t, wait, "the deadline", func() bool { return slices.Contains(w.findings(), overdue) })
		for range 5 {
			if r := w.pass(); r.Complete || len(r.Actions) != 0 || len(r.Silent) != 1 || !strings.Contains(r.Silent[0].Reason, "default/odd") {
				t.Errorf("a pass: %+v", r)
			}
		}
		for addr, want := range map[string]api.State{released.held.Address: api.Releasing, removed.held.Address: api.Bound,
			absent.Address: api.Bound, late.Leases[0].Address: api.Reserved} {
			if got := w.state(addr); got != want {
				t.Errorf("%s is %s, want %s", addr, got, want)
			}
		}
		doctor, err := w.client.Doctor(ctx)
		if err != nil || !slices.ContainsFunc(doctor.Findings, func(f api.Finding) bool {
			return f.Kind == "witness_silent" && strings.Contains(f.Detail, "default/odd") && !f.Since.IsZero()
		}) {
			t.Errorf("doctor says %+v, %v", doctor, err)
		}
		d.Delete(t, "default", "odd")
		w.becomes(released.held.Address, api.Cooling)
		realtest.Eventually(t, wait, "all to end", func() bool {
			w.pass()
			return w.is(removed.held.Address, api.Cooling) && w.is(absent.Address, api.Cooling) &&
				w.state(late.Leases[0].Address) == api.Free
		})
	})
}

// operate builds ipamctl and returns a hand on it: what a person types after
// its name, and what the program answers.
func (w *world) operate() func(line string) (code int, output string) {
	w.t.Helper()
	program := realtest.Program(w.t, "cmd/ipamctl")
	return func(line string) (int, string) {
		w.t.Helper()
		// A daemon of the test's own process stands still when that does.
		cmd := exec.Command(program, append([]string{"--socket", w.cfg.Socket.Path, "--timeout", "10m"}, strings.Fields(line)...)...)
		cmd.Env = append(os.Environ(), "COLUMNS=400")
		out, err := cmd.CombinedOutput()
		if err != nil && cmd.ProcessState == nil {
			w.t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(out)
	}
}

// The history of an address and of a sandbox, after a whole life and with the
// next one begun: who held it, from when until when, why it ended and by whom,
// with revisions; and the same from some time on.
func TestHistoryOfALife(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slow, pool("10.8.64.0/30"), func(c *config.Config) {
		c.Allocation.Cooldown, c.Allocation.CooldownMin = config.Duration(50*time.Millisecond), config.Duration(50*time.Millisecond)
	})
	ipamctl := w.operate()
	l := w.give("web-1", "10.8.64.2").Leases[0]
	for _, step := range []func() (*api.LeaseReply, error){
		func() (*api.LeaseReply, error) {
			return w.client.Bind(ctx, l.ID, api.BindRequest{MAC: "02:00:00:00:00:01"})
		},
		func() (*api.LeaseReply, error) { return w.client.Pause(ctx, l.ID, api.PauseRequest{}) },
		func() (*api.LeaseReply, error) { return w.client.Resume(ctx, l.ID, api.PauseRequest{}) },
		func() (*api.LeaseReply, error) { return w.client.Release(ctx, l.ID, api.ReleaseRequest{Wait: "60s"}) },
	} {
		if _, err := step(); err != nil {
			t.Fatal(err)
		}
	}
	var next api.Lease
	realtest.Eventually(t, wait, "the cooldown", func() bool {
		r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "web-2"})
		if err == nil {
			next = r.Leases[0]
		}
		return err == nil
	})
	read := func(line string) (moves []string, list api.ChangeList) {
		t.Helper()
		code, output := ipamctl("history " + line + " -o json")
		if err := json.Unmarshal([]byte(output), &list); err != nil || code != 0 {
			t.Fatalf("history %s: exit %d, %v: %s", line, code, err, output)
		}
		for i, c := range slices.Backward(list.Changes) {
			moves = append(moves, fmt.Sprintf("%s %s>%s %s by %s", c.Sandbox, c.From, c.To, c.Reason, c.Actor))
			if i > 0 && (c.Revision >= list.Changes[i-1].Revision || c.At.After(list.Changes[i-1].At)) {
				t.Errorf("history %s is not newest first: %+v", line, list.Changes)
			}
		}
		return moves, list
	}
	first := []string{
		"web-1 free>reserved allocated by allocator",
		"web-1 reserved>bound bound by client",
		"web-1 bound>paused paused by client",
		"web-1 paused>bound resumed by client",
		"web-1 bound>releasing released by client",
		"web-1 releasing>cooling removal_confirmed by watchdog",
	}
	second := []string{"web-2 cooling>reserved allocated by allocator"}
	whole, list := read("10.8.64.2")
	ended := list.Changes[1]                                                                // the last one of the first
	if rested := "web-1 cooling>free rested by allocator"; slices.Contains(whole, rested) { // before it was given again, or not
		first, second = append(first, rested), []string{"web-2 free>reserved allocated by allocator"}
	}
	if want := slices.Concat(first, second); !slices.Equal(whole, want) {
		t.Errorf("the address: %q", whole)
	}
	if got, _ := read("web-1"); !slices.Equal(got, first) {
		t.Errorf("its first sandbox: %q", got)
	}
	if got, _ := read("web-2"); !slices.Equal(got, second) {
		t.Errorf("its second sandbox: %q", got)
	}
	cooled := list.Changes[len(list.Changes)-6]
	if got, _ := read("10.8.64.2 --since " + cooled.At.Format(time.RFC3339Nano)); !slices.Equal(got, slices.Concat(first[5:], second)) {
		t.Errorf("since it cooled: %q", got)
	}
	if got, _ := read("web-1 --since 1h"); !slices.Equal(got, first) {
		t.Errorf("of the last hour: %q", got)
	}
	// In words: a line for each holder.
	begun, released := list.Changes[len(list.Changes)-1], list.Changes[len(list.Changes)-5]
	local := func(at time.Time) string { return at.Local().Format(time.RFC3339) }
	_, output := ipamctl("history 10.8.64.2")
	for _, holder := range [][]string{
		{"web-1", local(begun.At), local(released.At), "released by client", fmt.Sprintf("%d-%d", begun.Revision, ended.Revision), l.ID},
		{"web-2", "still", "reserved", fmt.Sprint(next.Revision), next.ID},
	} {
		if !slices.ContainsFunc(strings.Split(output, "\n"), func(line string) bool {
			return !slices.ContainsFunc(holder, func(part string) bool { return !strings.Contains(line, part) })
		}) {
			t.Errorf("no line has %q:\n%s", holder, output)
		}
	}
}

// A cure is what doctor has to say about one trouble of a world, and what a
// person does then: the command that doctor names, and where that only shows,
// what it shows to do.
type cure struct {
	finding string // kind and address
	detail  string // part of it: who says so
	repair  string // how the advice begins
	then    func()
}

// A runner with as much wrong as fits on one: doctor reports each trouble on a
// line with its kind, since when, which witnesses, and the verb that repairs it.
// Every verb is taken at its word, and in the end there is nothing to report.
func TestDoctorsAdviceRepairs(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), hasty, func(c *config.Config) {
			c.Reconcile.LeastReleases, c.Reconcile.MaxReleases = 1, 0.001
			c.Allocation.QuarantineShare = 0.004 // one address
			c.Watchdog.ReleasingMax = config.Duration(100 * time.Millisecond)
		})
		ipamctl := w.operate()
		if code, output := ipamctl("doctor"); code != 0 {
			t.Fatalf("at first: exit %d: %s", code, output)
		}
		do := func(line string) {
			t.Helper()
			if code, output := ipamctl(line); code != 0 {
				t.Errorf("ipamctl %s: exit %d: %s", line, code, output)
			}
		}
		// plugged makes a bound lease with a port and no container.
		plugged := func(name string) (api.Lease, *nstest.Port) {
			t.Helper()
			l := w.allocate(name).Leases[0]
			port := w.ns.Port("rt0", l.Address+"/24")
			if _, err := w.client.Bind(ctx, l.ID, api.BindRequest{Netns: port.NS.Path(), HostInterface: port.HostName, MAC: port.MAC.String()}); err != nil {
				t.Fatal(err)
			}
			return l, port
		}
		outside, outsidePort := plugged("outside")
		w.stopDaemon()
		w.cfg.Pools[0].Exclude = []string{outside.Address}
		w.start()

		stray := w.box(d, "stray")
		d.Delete(t, "default", "stray")
		stuck := w.box(d, "stuck")
		do("release " + stuck.held.ID)
		lost, lostPort := plugged("lost")
		lostToo, lostTooPort := plugged("lost-too")
		lostPort.Close()
		lostTooPort.Close()
		disputed := w.allocate("disputed").Leases[0]
		if _, err := w.client.Bind(ctx, disputed.ID, api.BindRequest{MAC: "02:00:00:00:01:02"}); err != nil {
			t.Fatal(err)
		}
		stranger := w.ns.Port("rt0", disputed.Address+"/24")
		realtest.Eventually(t, wait, "a pass to be held", func() bool {
			r, err := w.client.Reconcile(ctx, api.ReconcileRequest{})
			return err == nil && r.Report.Held != nil && r.Report.Held.Releases == 2
		})
		// No whole pass is made from here on, so nothing expires.
		r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "late", BindWithin: "1s"})
		if err != nil {
			t.Fatal(err)
		}
		late := r.Leases[0]
		const twice, byHand, foreign = "10.8.64.60", "10.8.64.100", "10.8.64.50"
		first, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "twin-a", Address: twice})
		if err != nil {
			t.Fatal(err)
		}
		d.Create(t, ctrdtest.Spec{ID: "twin-a", Labels: labels("twin-a", twice)})
		w.bind(first.Leases[0], "twin-a")
		d.Create(t, ctrdtest.Spec{ID: "twin-b", Labels: labels("twin-b", twice)})
		do("quarantine add " + byHand + " --reason printer")
		d.Create(t, ctrdtest.Spec{ID: "guest", Labels: labels("guest", byHand)})
		foreigner := w.ns.Port("rt0", foreign+"/24")

		cures := []cure{
			{"foreign " + foreign, "the netns witness sees", "ipamctl whois " + foreign, foreigner.Close},
			{"unleased " + byHand, `sandbox "guest" in container default/guest`, "ipamctl whois " + byHand + " # once its container is removed: ipamctl quarantine clear " + byHand,
				func() { d.Delete(t, "default", "guest") }},
			{"quarantined " + byHand, "by the operator: printer", "ipamctl whois " + byHand, func() {}},
			{"quarantine_full " + foreign, "it is not quarantined", "ipamctl quarantine ls", func() {}},
			{"quarantine_near_cap", "1 of at most 1", "ipamctl quarantine ls", func() {}},
			{"two_claimants " + twice, `sandbox "twin-a" in container default/twin-a and sandbox "twin-b" in container default/twin-b`,
				"ipamctl whois " + twice, func() { d.Delete(t, "default", "twin-b") }},
			{"conflict " + disputed.Address, "the netns witness sees it under another", "ipamctl whois " + disputed.Address,
				func() { stranger.Close(); do("release " + disputed.ID) }},
			{"stray " + stray.held.Address, "the netns witness sees it", "ipamctl whois " + stray.held.Address, stray.port.Close},
			{"releasing_stuck " + stuck.held.Address, "container default/stuck is there (task running)", "ipamctl show " + stuck.held.ID,
				func() { stuck.port.Close(); d.Delete(t, "default", "stuck") }},
			{"outside_pool " + outside.Address, "it is excluded", "ipamctl show " + outside.ID,
				func() { outsidePort.Close(); do("release " + outside.ID) }},
			{"reserved_past_deadline " + late.Address, "within 1s", "ipamctl release " + late.ID, func() {}},
			{"bound_unseen " + lost.Address, "no witness sees", "ipamctl show " + lost.ID, func() {}},
			{"bound_unseen " + lostToo.Address, "no witness sees", "ipamctl show " + lostToo.ID, func() {}},
			{"reap_held", "2 of", "ipamctl reconcile --preview # if they are gone: ipamctl reconcile --confirm", func() {}},
		}
		var want []string
		for _, c := range cures {
			want = append(want, c.finding)
		}
		slices.Sort(want)
		var got []string
		var output string
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("doctor said %q, should have said %q, and in the end: %s", got, want, output)
			}
		})
		realtest.Eventually(t, wait, "every trouble to be reported", func() bool {
			got = w.findings()
			slices.Sort(got)
			return slices.Equal(got, want)
		})
		doctor, err := w.client.Doctor(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var code int
		if code, output = ipamctl("doctor"); code != 1 {
			t.Errorf("doctor ends with %d", code)
		}
		for _, c := range cures {
			at := slices.IndexFunc(doctor.Findings, func(f api.Finding) bool { return strings.TrimSpace(f.Kind+" "+f.Address) == c.finding })
			f := doctor.Findings[at]
			if !strings.Contains(f.Detail, c.detail) || !strings.HasPrefix(f.Repair, c.repair) || f.Since.IsZero() {
				t.Errorf("%s: %+v", c.finding, f)
			}
			if !slices.ContainsFunc(strings.Split(output, "\n\n"), func(part string) bool {
				return strings.HasPrefix(part, f.Kind) && strings.Contains(part, f.Address) && strings.Contains(part, c.repair)
			}) {
				t.Errorf("ipamctl doctor has no part of %s:\n%s", c.finding, output)
			}
		}
		for _, c := range cures {
			c.then()
			for _, command := range strings.Split(c.repair, "ipamctl ")[1:] {
				command, _, _ = strings.Cut(command, " #")
				ends := 0
				if strings.HasSuffix(command, "--preview") {
					ends = 8 // it would be held
				}
				realtest.Eventually(t, wait, "ipamctl "+command, func() bool { code, output = ipamctl(command); return code == ends })
			}
		}
		// A container that goes right after its lease was bound may have been seen
		// only before that; then it takes passes to end the lease.
		realtest.Eventually(t, wait, "doctor to find nothing", func() bool {
			do("reconcile")
			code, output = ipamctl("doctor")
			return code == 0
		})
		if len(w.findings()) != 0 {
			t.Errorf("left: %s", output)
		}
	})
}
