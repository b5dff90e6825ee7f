package metrics

import "github.com/prometheus/client_golang/prometheus"

var (
	descRefused = describe("refused_packets_total", "Packets that the rules refused: dropped with mode enforce, only counted with observe.", "mode", "reason")
	descForeign = describe("rules_changed_total", "Times that another program changed the table of rules.")
	descRepairs = describe("rules_repaired_total", "Times that the table of rules was not as the book has it, and was made so.")
	descRules   = describe("rules_held", "1 when the kernel has the rules that the book asks for; absent while enforce.mode is off.")
)

// rules reads the rules and what they counted. Counters that cannot be read have no sample.
func (s scrape) rules(ch chan<- prometheus.Metric) {
	if s.Rules == nil {
		return
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	now := s.Rules.Status()
	counter(descForeign, now.Foreign)
	counter(descRepairs, now.Repairs)
	ch <- prometheus.MustNewConstMetric(descRules, prometheus.GaugeValue, one(now.Held))
	refused, err := s.Rules.Refusals()
	if err != nil {
		return
	}
	by := map[string]uint64{}
	for _, r := range refused {
		by[string(r.Reason)] += r.Packets
	}
	for reason, n := range by {
		counter(descRefused, n, string(now.Policy.Mode), reason)
	}
}
