package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	descSlots       = describe("warm_slots", "Warm slots of a pool that no sandbox has: ready, making, or ending, which are being taken down.", "pool", "family", "state")
	descSlotsWanted = describe("warm_slots_wanted", "Warm slots that a pool is to have ready: its size, or fewer where sandboxes may need the addresses.", "pool", "family")
	descWarmHelper  = describe("warm_helper", "1 when a helper asks for work on warm slots.")
)

// SlotMade counts a warm slot that was made.
func (m *Metrics) SlotMade(took time.Duration) { m.slotSeconds.Observe(took.Seconds()) }

// SlotFailed counts one that could not be made.
func (m *Metrics) SlotFailed(pool string) { m.slotsFailed.WithLabelValues(pool).Inc() }

// SlotClaimed counts one that was given to a sandbox.
func (m *Metrics) SlotClaimed(pool string) { m.slotsClaimed.WithLabelValues(pool).Inc() }

// slots reads the warm slots of the pools that have any, or shall.
func (s scrape) slots(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	usage, _ := s.Book.Usage()
	for _, u := range usage {
		n := s.Warm.Status(u)
		if u.Pool.Warm == nil && n.Ready+n.Making+n.Ending == 0 {
			continue
		}
		family := u.Pool.FamilyName()
		for state, count := range map[string]int{"ready": n.Ready, "making": n.Making, "ending": n.Ending} {
			gauge(descSlots, count, u.Pool.Name, family, state)
		}
		gauge(descSlotsWanted, n.Wanted, u.Pool.Name, family)
	}
	ch <- prometheus.MustNewConstMetric(descWarmHelper, prometheus.GaugeValue, one(s.Warm.Helped()))
}
