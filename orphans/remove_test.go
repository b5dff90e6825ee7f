package orphans_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/ownertest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/orphans"
)

// G10: a runtime's client binds a lease of its own to the containers of another
// else, who never had a sandbox, and its owner says that the sandbox is gone. What
// carries the sandbox's name or the lease's id is ended, and nothing else is, though
// the lease records it; the lease is not confirmed while that is there.
func TestG10OnlyLabelledContainersAreEnded(t *testing.T) {
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		o := ownertest.Start(t)
		b := newScene(t, d, o)
		_, signals := b.run("", "infra-etcd", trap(""))
		b.record("", "infra-log")
		b.record("a", "c1")
		l := b.lease("a", "c1", "c2", "infra-etcd", "infra-log")
		d.Create(t, ctrdtest.Spec{Namespace: space, ID: "c2", Labels: map[string]string{"ipamd.dev/lease-id": l.ID}})
		d.Create(t, ctrdtest.Spec{Namespace: space, ID: "infra-db", Labels: map[string]string{"ipamd.dev/lease-id": "01a2037d-8699-7e55-826a-e21d7061d121"}})
		o.Set("gone", "a")
		swept := b.sweep()
		if len(swept.Orphans) != 1 || !swept.Orphans[0].Removed || len(swept.Orphans[0].Containers) != 2 {
			t.Errorf("swept %+v", swept)
		}
		b.wantNotes("task c1", "task c2", "record c1", "record c2", "lease of a (watchdog, orphaned)")
		if got := signals(); got != "" {
			t.Errorf("the container of another sandbox got the signals %q", got)
		}
		if got := b.containers(); fmt.Sprint(got) != "[infra-db infra-etcd infra-log]" || b.state(l) != ipam.Releasing {
			t.Errorf("there are containers %v, the lease is %s", got, b.state(l))
		}
	})
}

// The steps of a removal, on processes that take SIGQUIT, that ignore it, that
// are frozen, and on records without one. The lease is released last.
func TestRemovalOfOrphans(t *testing.T) {
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		o := ownertest.Start(t)

		t.Run("it ends at SIGQUIT", func(t *testing.T) {
			b := newScene(t, d, o)
			_, signals := b.run("a", "c1", trap("exit 0"))
			b.record("a", "c2")
			b.run("bystander", "c3", trap("exit 0"))
			l, other := b.lease("a", "c1"), b.lease("bystander", "c3")
			o.Set("gone", "a")
			swept := b.sweep()
			if len(swept.Orphans) != 1 || !swept.Orphans[0].Removed || !swept.Orphans[0].Listed {
				t.Errorf("swept %+v", swept)
			}
			if got := signals(); got != "QUIT" {
				t.Errorf("it got the signals %q", got)
			}
			b.wantNotes("quit c1", "quit c2", "task c1", "task c2", "record c1", "record c2", "lease of a (watchdog, orphaned)")
			if got := b.containers(); fmt.Sprint(got) != "[c3]" || b.state(l) != ipam.Releasing || b.state(other) != ipam.Bound {
				t.Errorf("there are containers %v, its lease is %s, another's %s", got, b.state(l), b.state(other))
			}
			if left, err := b.Orphans(); len(left) != 0 || err != nil {
				t.Errorf("orphans: %+v, %v", left, err)
			}
			d.Delete(t, space, "c3")
		})

		t.Run("it ignores SIGQUIT", func(t *testing.T) {
			b := newScene(t, d, o, func(c *orphans.Config) { c.KillWait = 50 * time.Millisecond })
			_, signals := b.run("b", "c1", trap(""))
			b.run("b", "c2", nil) // the first process of a namespace gets no signal that it does not handle
			b.run("b", "c3", nil)
			d.Pause(t, space, "c3")
			l := b.lease("b", "c1", "c2", "c3")
			b.interfere(func(step string) {
				if step == "killed c1" { // its trap had the time that it needs
					realtest.Eventually(t, soon, "the trap has noted SIGQUIT", func() bool { return signals() != "" })
				}
			})
			b.sweep()
			if got := signals(); got != "QUIT" {
				t.Errorf("it got the signals %q", got)
			}
			b.wantNotes("quit c1", "quit c2", "quit c3", "killed c1", "killed c2", "killed c3",
				"task c1", "task c2", "task c3", "record c1", "record c2", "record c3", "lease of b (watchdog, orphaned)")
			if got := b.containers(); len(got) != 0 || b.state(l) != ipam.Releasing {
				t.Errorf("there are containers %v, its lease is %s", got, b.state(l))
			}
		})

		t.Run("its shim is frozen", func(t *testing.T) {
			b := newScene(t, d, o, func(c *orphans.Config) {
				c.KillWait, c.Timeout = 50*time.Millisecond, 300*time.Millisecond
			})
			b.run("c", "c1", nil)
			b.run("c", "c2", nil)
			l := b.lease("c", "c1", "c2")
			d.FreezeShim(t, space, "c2")
			for range 3 {
				swept := b.sweep()
				if len(swept.Orphans) != 1 || swept.Orphans[0].Removed || swept.Orphans[0].Err == nil {
					t.Errorf("swept %+v", swept)
				}
			}
			if left, _ := b.Orphans(); len(left) != 1 || left[0].Err == nil || !strings.Contains(left[0].Detail(), "c2") {
				t.Errorf("orphans %+v", left)
			}
			for _, step := range b.read() {
				if strings.HasPrefix(step, "lease") || strings.HasPrefix(step, "record") {
					t.Errorf("done was: %s", step)
				}
			}
			if n := b.log.count("could not be removed"); n != 1 || b.state(l) != ipam.Bound || len(b.containers()) != 2 {
				t.Errorf("logged %d times, its lease is %s, containers %v", n, b.state(l), b.containers())
			}
			d.ThawShim(t, space, "c2")
			b.cfg.Timeout = soon
			var err error
			b.Sweeper, err = orphans.New(b.cfg)
			b.check(err)
			realtest.Eventually(t, soon, "it is removed", func() bool { return b.sweep() != nil && len(b.containers()) == 0 })
			if b.state(l) != ipam.Releasing {
				t.Errorf("its lease is %s", b.state(l))
			}
		})

		t.Run("containerd is killed in between", func(t *testing.T) {
			b := newScene(t, d, o)
			b.record("e", "c1")
			b.record("e", "c2")
			l := b.lease("e", "c1", "c2")
			b.interfere(func(step string) {
				if step == "record c2" {
					d.Kill9()
				}
			})
			if swept := b.sweep(); len(swept.Orphans) != 1 || swept.Orphans[0].Err == nil || b.state(l) != ipam.Bound {
				t.Errorf("swept %+v, its lease is %s", swept, b.state(l))
			}
			if _, err := b.Sweep(ctx); err == nil {
				t.Error("without containerd the sweep judges")
			}
			b.interfere(nil)
			d.Restart()
			realtest.Eventually(t, soon, "it is removed", func() bool {
				_, err := b.Sweep(ctx)
				return err == nil && b.state(l) == ipam.Releasing
			})
			b.wantNotes("task c1", "task c2", "record c1", "record c2 failed",
				"task c2", "record c2", "lease of e (watchdog, orphaned)")
		})
	})
}

// What happens between the judgement and the last step: what lives again
// is left alone, and a lease that changed is not released.
func TestInterference(t *testing.T) {
	d := ctrdtest.Start(t, ctrdtest.V2)
	o := ownertest.Start(t)
	for name, tt := range map[string]struct {
		at   string // the step before which it happens
		do   func(b *scene, l *ipam.Lease, sandbox string)
		want string // state of the lease after it
		says string // in the reason why it is not removed
	}{
		"a container more": {"record %s-c2", func(b *scene, _ *ipam.Lease, s string) { b.record(s, s+"-new") },
			"bound", "-new is there"},
		"its lease changed": {"record %s-c2", func(b *scene, l *ipam.Lease, _ string) {
			if _, err := b.book.Bind(ctx, client, l.ID, 0, ipam.Binding{HostInterface: "vethnew"}); err != nil {
				b.Error(err)
			}
		}, "bound", "revision is stale"},
		"its owner released it": {"record %s-c2", func(b *scene, l *ipam.Lease, _ string) {
			if _, err := b.book.Release(ctx, client, l.ID, "", 0); err != nil {
				b.Error(err)
			}
		}, "releasing", ""},
		"its lease ended": {"record %s-c2", func(b *scene, l *ipam.Lease, _ string) { netdbtest.Cool(b, b.book, l) },
			"cooling", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newScene(t, d, o)
			s := strings.ReplaceAll(name, " ", "-")
			b.record(s, s+"-c1")
			b.record(s, s+"-c2")
			l := b.lease(s, s+"-c1", s+"-c2")
			b.interfere(func(step string) {
				if step == fmt.Sprintf(tt.at, s) {
					tt.do(b, l, s)
				}
			})
			swept := b.sweep()
			if len(swept.Orphans) != 1 {
				t.Fatalf("swept %+v", swept)
			}
			one := swept.Orphans[0]
			if one.Removed != (tt.says == "") || !one.Removed && !strings.Contains(one.Err.Error(), tt.says) {
				t.Errorf("removed: %v, %v, want %q", one.Removed, one.Err, tt.says)
			}
			if got := string(b.state(l)); got != tt.want {
				t.Errorf("its lease is %s, want %s", got, tt.want)
			}
			b.interfere(nil)
			b.sweep()
			b.read()
			if len(b.containers()) != 0 {
				t.Errorf("left are %v", b.containers())
			}
		})
	}

	t.Run("made anew before its turn", func(t *testing.T) {
		b := newScene(t, d, o, func(c *orphans.Config) { c.Parallel = 1 })
		b.record("x", "x1")
		b.record("y", "y1")
		l := b.lease("y", "y1")
		b.interfere(func(step string) {
			if step == "task x1" {
				b.record("y", "y2")
			}
		})
		swept := b.sweep()
		if len(swept.Orphans) != 2 || !swept.Orphans[0].Removed || swept.Orphans[1].Removed {
			t.Errorf("swept %+v", swept)
		}
		b.wantNotes("task x1", "record x1")
		if got := b.containers(); fmt.Sprint(got) != "[y1 y2]" || b.state(l) != ipam.Bound {
			t.Errorf("there are %v, its lease is %s", got, b.state(l))
		}
		b.interfere(nil)
		b.sweep()
	})

	t.Run("asked to stop", func(t *testing.T) {
		b := newScene(t, d, o)
		_, _ = b.run("z", "z1", nil)
		l := b.lease("z", "z1")
		b.sweepOnce()
		ended, cancel := context.WithCancel(ctx)
		b.interfere(func(step string) {
			if step == "quit z1" {
				cancel()
			}
		})
		began := time.Now()
		swept, err := b.Sweep(ended)
		if took := time.Since(began); err != nil || swept.Orphans[0].Removed || !errors.Is(swept.Orphans[0].Err, context.Canceled) || took >= soon {
			t.Errorf("swept %+v, %v, after %v", swept, err, took)
		}
		if _, err := b.Sweep(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("swept without an orphan: %v", err)
		}
		if b.state(l) != ipam.Bound || len(b.containers()) != 1 || b.log.count("could not be removed") != 0 {
			t.Errorf("its lease is %s, containers %v", b.state(l), b.containers())
		}
	})
}

// A sandbox begins anew under its name while its old containers are removed:
// its owner calls it valid again, or was given its lease again. What is left of
// it then stays, and its lease is not released, be it at the revision at which it
// was judged.
func TestBeginsAnewDuringItsRemoval(t *testing.T) {
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		o := ownertest.Start(t)
		calledValid := func(b *scene, l *ipam.Lease) { b.o.Set("valid", l.Sandbox) }
		given := func(b *scene, _ *ipam.Lease) { b.given.Store(true) }
		unclear := func(b *scene, l *ipam.Lease) { b.o.Set("limbo", l.Sandbox) }
		for i, tt := range []struct {
			name, at string // the step before which it happens
			do       func(*scene, *ipam.Lease)
			says     string
			done     []string
			left     string
		}{
			{"given before the first signal", "", given, "has not bound it", nil, "[c1]"},
			{"called valid after SIGQUIT", "quit c1", calledValid, "is valid", []string{"quit c1"}, "[c1]"},
			{"given after SIGQUIT", "quit c1", given, "has not bound it", []string{"quit c1"}, "[c1]"},
			{"its owner does not know after SIGQUIT", "quit c1", unclear, "its owner", []string{"quit c1"}, "[c1]"},
			{"called valid after SIGKILL", "killed c1", calledValid, "is valid", []string{"quit c1", "killed c1"}, "[c1]"},
			{"given after SIGKILL", "killed c1", given, "has not bound it", []string{"quit c1", "killed c1"}, "[c1]"},
			{"given while its task is deleted", "task c1", given, "has not bound it", []string{"quit c1", "killed c1", "task c1"}, "[c1]"},
			{"called valid while its record is deleted", "record c1", calledValid, "is valid", []string{"quit c1", "killed c1", "task c1", "record c1"}, "[]"},
			{"given while its record is deleted", "record c1", given, "has not bound it", []string{"quit c1", "killed c1", "task c1", "record c1"}, "[]"},
			{"given while it is released", "lease", given, "has not bound it",
				[]string{"quit c1", "killed c1", "task c1", "record c1", "lease of s9 (watchdog, orphaned) failed"}, "[]"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				b := newScene(t, d, o, func(c *orphans.Config) { c.KillWait = 50 * time.Millisecond })
				s := fmt.Sprint("s", i)
				b.run(s, "c1", nil) // takes no SIGQUIT
				l := b.lease(s, "c1")
				o.Set("gone", s)
				b.sweepOnce()
				if tt.at == "" {
					tt.do(b, l)
				}
				b.interfere(func(step string) {
					if tt.at != "" && strings.HasPrefix(step, tt.at) {
						tt.do(b, l)
					}
				})
				swept := b.sweepOnce()
				if len(swept.Orphans) != 1 || swept.Orphans[0].Removed || !strings.Contains(fmt.Sprint(swept.Orphans[0].Err), tt.says) {
					t.Errorf("swept %+v", swept)
				}
				b.wantNotes(tt.done...)
				if now, err := b.book.Lease(l.ID); err != nil || now.Rev != l.Rev || fmt.Sprint(b.containers()) != tt.left {
					t.Errorf("its lease is %+v, %v; there are %v", now, err, b.containers())
				}
				for _, id := range b.containers() {
					d.Delete(t, space, id)
				}
			})
		}
	})
}

func TestSweepConfig(t *testing.T) {
	d := ctrdtest.Start(t, ctrdtest.V2)
	b := newScene(t, d, ownertest.Start(t))
	for name, spoil := range map[string]func(*orphans.Config){
		"no owner":     func(c *orphans.Config) { c.Owner = nil },
		"no runtime":   func(c *orphans.Config) { c.Runtime = nil },
		"no book":      func(c *orphans.Config) { c.Book = nil },
		"no board":     func(c *orphans.Config) { c.Board = nil },
		"no answers":   func(c *orphans.Config) { c.Awaited = nil },
		"no clock":     func(c *orphans.Config) { c.Now = nil },
		"no pause":     func(c *orphans.Config) { c.Every = 0 },
		"no grace":     func(c *orphans.Config) { c.Grace = 0 },
		"no wait":      func(c *orphans.Config) { c.KillWait = -1 },
		"no time":      func(c *orphans.Config) { c.Timeout = 0 },
		"none at once": func(c *orphans.Config) { c.Parallel = 0 },
	} {
		cfg := b.cfg
		spoil(&cfg)
		if _, err := orphans.New(cfg); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
	cfg := b.cfg
	cfg.Log = nil
	if _, err := orphans.New(cfg); err != nil {
		t.Error(err)
	}
}
