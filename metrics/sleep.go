package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ipamd/ipamd/ipam"
)

var (
	descUnanswered = describe("wakes_unacknowledged", "Wakes that the runtime was asked for, and has not acknowledged.")
	descCopies     = describe("wake_copies_total", "Copies of packets to paused sandboxes that began no wake: suppressed while one is under way or failed a moment ago, malformed, or lost to an overrun, counted once a time.", "kind")
	descIdle       = describe("idle_leases", "Bound leases whose sandbox had no traffic for idle.after; absent while that is 0s.")
	descQuiet      = describe("quiet_leases", "Bound leases whose sandbox had no traffic for so long at least, as of the last reading; absent while idle.after is 0s.", "for")
)

// quietFor are the ages by which quiet leases are counted.
var quietFor = []struct {
	label string
	least time.Duration
}{{"1s", time.Second}, {"1m", time.Minute}, {"10m", 10 * time.Minute}, {"1h", time.Hour}, {"24h", 24 * time.Hour}}

// Woken counts a wake that ended.
func (m *Metrics) Woken(f *ipam.Flight, r ipam.FlightResult, took time.Duration) {
	m.wakes.WithLabelValues(f.Cause.By, string(r)).Inc()
	if r == ipam.Woken {
		m.wakeSeconds.WithLabelValues(f.Cause.By).Observe(took.Seconds())
	}
}

// sleeps reads what is known of those that sleep, or could.
func (s scrape) sleeps(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(descUnanswered, prometheus.GaugeValue, float64(s.Flights.Unacknowledged()))
	if s.Catcher != nil {
		n := s.Catcher.Counts()
		for kind, n := range map[string]int64{"suppressed": n.Suppressed, "malformed": n.Malformed, "overrun": n.Overruns} {
			ch <- prometheus.MustNewConstMetric(descCopies, prometheus.CounterValue, float64(n), kind)
		}
	}
	if s.Idle != nil {
		ch <- prometheus.MustNewConstMetric(descIdle, prometheus.GaugeValue, float64(s.Idle.Idle()))
		quiet := s.Idle.Quiet()
		for _, age := range quietFor {
			n := 0
			for _, d := range quiet {
				if d >= age.least {
					n++
				}
			}
			ch <- prometheus.MustNewConstMetric(descQuiet, prometheus.GaugeValue, float64(n), age.label)
		}
	}
}
