package bridge

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/nstest"
)

// BenchmarkSettleNothingPending is what every allocation pays.
func BenchmarkSettleNothingPending(b *testing.B) {
	ns := nstest.New(b)
	ns.Bridge("rt0", "10.8.0.1/24")
	v := open(b, ns)
	v.settle()
	ctx := context.Background()
	for b.Loop() {
		if err := v.Settle(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSettleAddress is one address that came or went in a namespace,
// with the change itself left out.
func BenchmarkSettleAddress(b *testing.B) {
	ns := nstest.New(b)
	ns.Bridge("rt0", "10.8.0.1/24")
	ns.Port("rt0", "10.8.0.7/24")
	v := open(b, ns)
	ctx := context.Background()
	for b.Loop() {
		v.netns.again[0] = true
		if err := v.Settle(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRefresh is the whole inventory: PERFORMANCE goal 9, per port.
func BenchmarkRefresh(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			ns := nstest.New(b)
			ns.Bridge("rt0", "10.9.0.1/16")
			for i := range n {
				ns.Port("rt0", fmt.Sprintf("10.9.%d.%d/16", 1+i/250, 1+i%250))
			}
			v := open(b, ns)
			for b.Loop() {
				if err := v.Refresh(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n), "µs/port")
		})
	}
}

// BenchmarkProbe is one question that floods the ports: hazard 7.
func BenchmarkProbe(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			ns := nstest.New(b)
			ns.Bridge("rt0", "10.9.0.1/16")
			for range n {
				ns.Port("rt0")
			}
			v := open(b, ns)
			free := v.about("10.9.9.9").Addr
			for b.Loop() {
				if err := v.Probe(context.Background(), free); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSettleBesideRefresh is what an allocation, which comes now and then,
// waits at the bridge while everything is read again and again.
func BenchmarkSettleBesideRefresh(b *testing.B) {
	ns := nstest.New(b)
	ns.Bridge("rt0", "10.9.0.1/16")
	for i := range 100 {
		ns.Port("rt0", fmt.Sprintf("10.9.1.%d/16", 1+i))
	}
	v := open(b, ns)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() {
		var err error
		for ctx.Err() == nil && err == nil {
			err = v.Refresh(context.Background())
		}
		ended <- err
	}()
	var waits []time.Duration
	for b.Loop() {
		<-time.After(200 * time.Microsecond)
		began := time.Now()
		if err := v.Settle(ctx); err != nil {
			b.Fatal(err)
		}
		waits = append(waits, time.Since(began))
	}
	slices.Sort(waits)
	b.ReportMetric(float64(waits[len(waits)/2].Microseconds()), "µs-p50")
	b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds()), "µs-p99")
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}
