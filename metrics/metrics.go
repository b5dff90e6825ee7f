package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/reconciler"
	"github.com/ipamd/ipamd/watchdog"
)

// Metrics is one daemon's Registry. What is a count of the book is read from
// the book at each scrape; what happened is counted where it became durable.
type Metrics struct {
	Registry *prometheus.Registry // what is exposed

	allocateSeconds prometheus.Histogram
	allocations     *prometheus.CounterVec
	earlyReuse      prometheus.Counter
	unprobed        prometheus.Counter
	conflicts       *prometheus.CounterVec
	quarantined     *prometheus.CounterVec
	releases        *prometheus.CounterVec
	changes         *prometheus.CounterVec
	requests        *prometheus.HistogramVec
	commitSeconds   prometheus.Histogram
	batchSize       prometheus.Histogram

	releaseSeconds   prometheus.Histogram
	reconcileSeconds prometheus.Histogram
	incomplete       *prometheus.CounterVec
	repairs          *prometheus.CounterVec
	reaped           *prometheus.CounterVec
	reapHeld         prometheus.Counter
	lookups          *prometheus.CounterVec
	wakes            *prometheus.CounterVec
	wakeSeconds      *prometheus.HistogramVec
	slotSeconds      prometheus.Histogram
	slotsFailed      *prometheus.CounterVec
	slotsClaimed     *prometheus.CounterVec
}

// fine are buckets for what takes from 50 µs to 10 s.
var fine = prometheus.ExponentialBucketsRange(50e-6, 10, 18)

func New() *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "ipamd", Name: name, Help: help})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "ipamd", Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "ipamd", Name: name, Help: help, Buckets: buckets})
	}
	m := &Metrics{
		Registry:        prometheus.NewRegistry(),
		allocateSeconds: histogram("allocate_seconds", "Time of an allocation, until it was durable.", fine),
		allocations:     counters("allocations_total", "Allocations by result: new, existing or refused; request_seconds has the class of a refusal.", "result"),
		earlyReuse:      counter("early_reuse_total", "Addresses given before their cooldown was over, because nothing else was left."),
		unprobed:        counter("unprobed_total", "Addresses given before the wire had time to answer a probe."),
		conflicts:       counters("conflicts_total", "Addresses about to be given, or held, that were seen under another, by the first witness.", "witness"),
		quarantined:     counters("quarantined_total", "Addresses quarantined.", "reason"),
		releases:        counters("releases_total", "Leases released, at the moment when that was decided.", "reason"),
		changes:         counters("changes_total", "Durable changes of leases.", "from", "to"),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "ipamd", Name: "request_seconds",
			Help: "Time of a call on the socket; of a watch, until its stream begins. Code is empty on success.", Buckets: fine}, []string{"verb", "code"}),
		commitSeconds: histogram("book_commit_seconds", "Time of a commit of the book.", fine),
		batchSize:     histogram("book_batch_size", "Requests that shared a commit.", prometheus.ExponentialBuckets(1, 2, 9)),

		releaseSeconds: histogram("release_seconds", "Time from a release to the confirmed removal.",
			prometheus.ExponentialBucketsRange(1e-3, 3600, 18)),
		reconcileSeconds: histogram("reconcile_seconds", "Time of a pass.", fine),
		incomplete:       counters("reconcile_incomplete_total", "Passes that a witness could not answer; they release nothing.", "witness"),
		repairs:          counters("repairs_total", "Steps of passes that made book, wire and runtime agree.", "kind"),
		reaped:           counters("reaped_total", "Leases that passes released, because their workload was gone without a release.", "reason"),
		reapHeld:         counter("reap_held_total", "Passes that a brake kept from releasing leases."),
		slotSeconds:      histogram("warm_make_seconds", "Time in which the helper makes a warm slot and its lease is bound.", fine),
		slotsFailed:      counters("warm_failed_total", "Warm slots that could not be made.", "pool"),
		slotsClaimed:     counters("warm_claims_total", "Warm slots that were given to sandboxes.", "pool"),
		wakes:            counters("wakes_total", "Wakes of paused sandboxes that ended.", "cause", "result"),
		wakeSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "ipamd", Name: "wake_seconds",
			Help: "Time from the first packet or call of a wake until the lease was bound.", Buckets: prometheus.ExponentialBucketsRange(1e-3, 600, 18)}, []string{"cause"}),
		lookups: counters("owner_lookups_total", "Questions to the owner about one sandbox.", "result"),
	}
	m.Registry.MustRegister(m.allocateSeconds, m.allocations, m.earlyReuse, m.unprobed, m.conflicts, m.quarantined,
		m.releases, m.changes, m.requests, m.commitSeconds, m.batchSize,
		m.releaseSeconds, m.reconcileSeconds, m.incomplete, m.repairs, m.reaped, m.reapHeld, m.lookups, m.wakes, m.wakeSeconds, m.slotSeconds, m.slotsFailed, m.slotsClaimed,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.begin()
	return m
}

// begin puts a 0 where the values of a label are known: a rate over a counter
// that comes into being with its first event does not see that event, and the
// first conflict of a runner is the one to be woken for.
func (m *Metrics) begin() {
	for _, result := range []string{allocatedNew, allocatedExisting, allocatedRefused} {
		m.allocations.WithLabelValues(result)
	}
	for _, w := range []census.Witness{census.Runtime, census.Netns, census.Host, census.Neighbour, census.Probe} {
		m.conflicts.WithLabelValues(string(w))
		m.incomplete.WithLabelValues(string(w))
	}
	for _, reason := range []string{ipam.SeenOnWire, watchdog.ReasonStill, watchdog.ReasonClaimed} {
		m.quarantined.WithLabelValues(reason)
	}
	for _, kind := range []string{reconciler.Adopt, reconciler.Bind, reconciler.Pause, reconciler.Still, reconciler.Resume, reconciler.Quarantine, reconciler.Clear} {
		m.repairs.WithLabelValues(kind)
	}
	for _, kind := range []string{reconciler.Reap, reconciler.Expire} {
		m.reaped.WithLabelValues(kind)
	}
	for _, cause := range []string{ipam.ByTraffic, ipam.ByCall} {
		m.wakeSeconds.WithLabelValues(cause)
		for _, r := range []ipam.FlightResult{ipam.Woken, ipam.TimedOut, ipam.Refused, ipam.Released, ipam.CalledOff} {
			m.wakes.WithLabelValues(cause, string(r))
		}
	}
	for _, v := range []watchdog.Verdict{watchdog.Valid, watchdog.Gone, watchdog.Unknown} {
		m.lookups.WithLabelValues(verdict(v))
	}
}

// The results of an allocation.
const (
	allocatedNew      = "new"
	allocatedExisting = "existing"
	allocatedRefused  = "refused"
)

func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{})
}

func (m *Metrics) Commit(took time.Duration, batch int) {
	m.commitSeconds.Observe(took.Seconds())
	m.batchSize.Observe(float64(batch))
}

func (m *Metrics) Change(c ipam.Change) {
	if c.Subject != ipam.OfLease {
		return
	}
	m.changes.WithLabelValues(string(c.From), string(c.To)).Inc()
	switch {
	case c.Who.Reason == ipam.ConflictSeen:
		m.conflicts.WithLabelValues(witnessOf(c)).Inc()
	case c.To == ipam.Quarantined && c.From != ipam.Quarantined:
		m.quarantined.WithLabelValues(c.Who.Reason).Inc()
	case c.To == ipam.Releasing, c.From == ipam.Reserved && c.To == ipam.Free:
		m.releases.WithLabelValues(c.Who.Reason).Inc()
	}
}

// witnessOf is who saw first what a change was made for.
func witnessOf(c ipam.Change) string {
	if seen := census.ParseEvidence(c.Evidence); len(seen) > 0 {
		return string(seen[0].Witness)
	}
	return "unknown"
}

func (m *Metrics) Conflict(s allocator.Skipped) {
	m.conflicts.WithLabelValues(string(s.Seen[0].Witness)).Inc()
}

func (m *Metrics) Request(verb string, code api.Code, took time.Duration) {
	m.requests.WithLabelValues(verb, string(code)).Observe(took.Seconds())
}

func (m *Metrics) Allocated(r *allocator.Result, err error, took time.Duration) {
	m.allocateSeconds.Observe(took.Seconds())
	switch {
	case err != nil:
		m.allocations.WithLabelValues(allocatedRefused).Inc()
	case r.Existing:
		m.allocations.WithLabelValues(allocatedExisting).Inc()
	default:
		m.allocations.WithLabelValues(allocatedNew).Inc()
		m.unprobed.Add(float64(len(r.Unprobed)))
		if r.EarlyReuse {
			m.earlyReuse.Inc()
		}
	}
}

func (m *Metrics) Confirmed(_ *ipam.Lease, took time.Duration) {
	m.releaseSeconds.Observe(took.Seconds())
}

func (m *Metrics) Lookup(v watchdog.Verdict) { m.lookups.WithLabelValues(verdict(v)).Inc() }

func verdict(v watchdog.Verdict) string {
	switch v {
	case watchdog.Valid:
		return "valid"
	case watchdog.Gone:
		return "gone"
	default:
		return "unknown"
	}
}

func (m *Metrics) Pass(r *reconciler.Report) {
	m.reconcileSeconds.Observe(r.Took.Seconds())
	for _, s := range r.Silent {
		m.incomplete.WithLabelValues(string(s.Witness)).Inc()
	}
	if r.Held != nil {
		m.reapHeld.Inc()
	}
	for _, a := range r.Actions {
		switch {
		case a.Result != reconciler.Done, a.Kind == reconciler.ConflictSeen, a.Kind == reconciler.ConflictOver:
		case a.Kind == reconciler.Reap, a.Kind == reconciler.Expire:
			m.reaped.WithLabelValues(a.Kind).Inc()
		default:
			m.repairs.WithLabelValues(a.Kind).Inc()
		}
	}
}
