package ctrd_test

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/typeurl/v2"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ipamd/ipamd/internal/ctrdtest"
)

// G9: a tenant puts megabytes into labels that are nobody's business. A reading holds a
// record or two of them at a time, however many there are, and finds what it looks for
// beside them.
func TestG9ForeignLabelsCostNothing(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		const records, labels, size = 60, 128, 4000
		create(t, d, records, labels, size)
		x := look(t, d)
		defer debug.SetGCPercent(debug.SetGCPercent(10)) // what is held, not what is to be collected
		held := func() uint64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		before, most := held(), uint64(0)
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			var m runtime.MemStats
			for {
				select {
				case <-stop:
					return
				default:
					runtime.ReadMemStats(&m)
					most = max(most, m.HeapAlloc)
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

// create makes records with labels of nobody's beside their own.
func create(t *testing.T, d *ctrdtest.Daemon, records, labels, size int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(namespaces.WithNamespace(context.Background(), "sandboxes"), soon)
	defer cancel()
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
