package ctrd_test

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/typeurl/v2"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ipamd/ipamd/internal/ctrdtest"
)

// G9: a tenant puts megabytes into labels that no part reads. A reading holds a
// record or two of them at a time, however many there are, and finds what it looks for
// beside them.
func TestG9ForeignLabelsCostNothing(t *testing.T) {
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		const records, labels, size = 60, 128, 4000
		create(t, d, records, labels, size)
		x := look(t, d)
		defer debug.SetGCPercent(debug.SetGCPercent(10)) // what is held, not what is to be collected
		held := func() uint64 {                          // without a stop of the world, which ReadMemStats makes
			heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
			metrics.Read(heap)
			return heap[0].Value.Uint64()
		}
		runtime.GC()
		before, most := held(), uint64(0)
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
					most = max(most, held())
				}
			}
		}()
		for range 3 {
			if err := x.w.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			if all, err := x.w.List(t.Context()); err != nil || len(all) != records || all[0].Sandbox == "" {
				t.Fatalf("%d records, %v", len(all), err)
			}
		}
		close(stop)
		<-done
		if x.by("10.8.64.2") == "" || x.by("10.8.64.61") == "" {
			t.Error("what the containers claim is not seen")
		}
		total := uint64(records * labels * size)
		if grew := most - min(most, before); grew > total/3 {
			t.Errorf("%d MiB of labels cost %d MiB", total>>20, grew>>20)
		}
	})
}

// create makes records with foreign labels beside their own.
func create(t *testing.T, d *ctrdtest.Daemon, records, labels, size int) {
	t.Helper()
	ctx := namespaces.WithNamespace(t.Context(), "sandboxes")
	c, err := containerd.New(d.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	spec, err := typeurl.MarshalAny(&specs.Spec{Version: "1.0.2"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range records {
		all := map[string]string{ownerLabel: fmt.Sprint("s", i), ipLabel: fmt.Sprint("10.8.64.", i+2)}
		for n := range labels {
			all[fmt.Sprint("tenant/", n)] = strings.Repeat("x", size)
		}
		if _, err := c.ContainerService().Create(ctx, containers.Container{ID: fmt.Sprint("c", i), Labels: all, Spec: spec,
			Runtime: containers.RuntimeInfo{Name: "io.containerd.runc.v2"}}); err != nil {
			t.Fatal(err)
		}
	}
}
