package reconciler

import (
	"slices"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

// The truth table: a world in lines, and what is decided in it.
func TestPlan(t *testing.T) {
	const a2, a3 = "10.8.64.2", "10.8.64.3"
	const hers = "02:00:00:00:00:07"
	type lines = []line
	for name, tt := range map[string]struct {
		world lines
		want  []string
	}{
		"nothing": {},
		"all agree": {lines{
			lease(a2, bound, "A", containers("c1"), on("veth1")),
			container("c1", owner("A"), ip(a2), runs), seen(netns, a2, port("veth1")),
		}, nil},

		// free or cooling | one live workload claims it | any
		"free, a workload runs with it":       {lines{lives("c1", "A", a2)}, []string{"adopt 10.8.64.2 A"}},
		"free, a workload stopped with it":    {lines{container("c1", owner("A"), ip(a2), ended)}, []string{"quarantine 10.8.64.2", "report unleased 10.8.64.2"}},
		"free, a workload never started":      {lines{container("c1", owner("A"), ip(a2))}, []string{"quarantine 10.8.64.2", "report unleased 10.8.64.2"}},
		"free, claimed and on the wire":       {lines{container("c1", owner("A"), ip(a2), runs, home("veth1")), seen(netns, a2, port("veth1"))}, []string{"adopt 10.8.64.2 A"}},
		"free, two containers of one sandbox": {lines{lives("c1", "A", a2), container("c2", owner("A"), ip(a2), ended)}, []string{"adopt 10.8.64.2 A"}},
		"free, one claims two addresses":      {lines{lives("c1", "A", a2, ip(a3)), seen(netns, a3, port("veth-c1"))}, []string{"adopt 10.8.64.2 A", "adopt 10.8.64.3 A"}},
		"free, claimed, the kernel is silent": {lines{lives("c1", "A", a2), silent(netns)}, []string{"adopt 10.8.64.2 A"}},
		"cooling, claimed since":              {lines{lease(a2, cooling, "B", age(5*time.Minute)), lives("c1", "A", a2)}, []string{"adopt 10.8.64.2 A"}},
		"cooling, claimed since before": {lines{lease(a2, cooling, "B", age(5*time.Minute)), container("c1", owner("A"), ip(a2), runs, since(6*time.Minute))},
			[]string{"report unleased 10.8.64.2"}},
		"cooling, claimed at that moment": {lines{lease(a2, cooling, "B", age(5*time.Minute)), container("c1", owner("A"), ip(a2), runs, since(5*time.Minute))},
			[]string{"report unleased 10.8.64.2"}},
		"cooling, one container of two is older": {lines{lease(a2, cooling, "B", age(5*time.Minute)),
			container("c1", owner("A"), ip(a2), runs), container("c2", owner("A"), ip(a2), runs, since(time.Hour))}, []string{"report unleased 10.8.64.2"}},
		"quarantined, claimed since":        {lines{lease(a2, quarantine, ""), lives("c1", "A", a2)}, []string{"adopt 10.8.64.2 A"}},
		"quarantined, claimed since before": {lines{lease(a2, quarantine, ""), container("c1", owner("A"), ip(a2), runs, since(2*time.Hour))}, []string{"report unleased 10.8.64.2"}},
		"quarantined by an operator, claimed": {lines{lease(a2, quarantine, "", setAside), container("c1", owner("A"), ip(a2), runs)},
			[]string{"report unleased 10.8.64.2"}},
		"the gateway is claimed":                 {lines{container("c1", owner("A"), ip("10.8.64.1"), runs)}, nil},
		"an excluded address is claimed":         {lines{container("c1", owner("A"), ip("10.8.64.200"), runs)}, nil},
		"an address of no pool is claimed":       {lines{container("c1", owner("A"), ip("192.0.2.9"), runs)}, nil},
		"a container claims nothing":             {lines{container("c1", owner("A"), runs)}, nil},
		"an owner's name that no lease can have": {lines{container("c1", owner("\xff"), ip(a2), runs)}, []string{"quarantine 10.8.64.2", "report unleased 10.8.64.2"}},

		// G6: free or cooling | claimed by labels alone | any
		"free, its task lives elsewhere":                {lines{container("c1", owner("A"), ip(a2), runs, home("veth9")), seen(netns, a2, port("veth1"))}, []string{"quarantine 10.8.64.2", "report unleased 10.8.64.2"}},
		"free, its task lives, no witness sees it":      {lines{container("c1", owner("A"), ip(a2), runs, home("veth1"))}, []string{"quarantine 10.8.64.2", "report unleased 10.8.64.2"}},
		"free, another port has it, too":                {lines{lives("c1", "A", a2), seen(netns, a2, port("veth9"))}, []string{"quarantine 10.8.64.2", "report unleased 10.8.64.2"}},
		"free, the host has it, too":                    {lines{lives("c1", "A", a2), seen(host, a2, port("rt0"))}, []string{"quarantine 10.8.64.2", "report unleased 10.8.64.2"}},
		"free, the host has it on the claimant's port":  {lines{container("c1", owner("A"), ip(a2), runs, home("veth1")), seen(host, a2, port("veth1"))}, []string{"quarantine 10.8.64.2", "report unleased 10.8.64.2"}},
		"free, two namespaces of its name have it":      {lines{lives("c1", "A", a2), container("c9", owner("A"), ip(a2), runs, home("veth9")), seen(netns, a2, port("veth9"))}, []string{"quarantine 10.8.64.2", "report unleased 10.8.64.2"}},
		"reserved, two namespaces of its name have it":  {lines{lease(a2, reserved, "A"), lives("c1", "A", a2), container("c9", owner("A"), ip(a2), runs, home("veth9")), seen(netns, a2, port("veth9"))}, nil},
		"bound, two namespaces of its name have it":     {lines{lease(a2, bound, "A"), lives("c1", "A", a2), container("c9", owner("A"), ip(a2), runs, home("veth9")), seen(netns, a2, port("veth9"))}, nil},
		"free, an answer comes by another port":         {lines{lives("c1", "A", a2), seen(census.Probe, a2, port("veth9"))}, []string{"adopt 10.8.64.2 A"}},
		"free, a virtual machine behind its port":       {lines{container("c1", owner("A"), ip(a2), runs, home("veth1")), seen(neighbour, a2, port("veth1"))}, []string{"adopt 10.8.64.2 A"}},
		"free, and behind another, too":                 {lines{container("c1", owner("A"), ip(a2), runs, home("veth1")), seen(neighbour, a2, port("veth1")), seen(census.Probe, a2, port("veth9"))}, []string{"quarantine 10.8.64.2", "report unleased 10.8.64.2"}},
		"free, its lease is known":                      {lines{container("c1", owner("A"), ip(a2), leased("L"), known)}, []string{"adopt 10.8.64.2 A"}},
		"free, its lease is known, another port has it": {lines{container("c1", owner("A"), ip(a2), leased("L"), known), seen(netns, a2, port("veth9"))}, []string{"quarantine 10.8.64.2", "report unleased 10.8.64.2"}},
		"free, its lease is not known":                  {lines{container("c1", owner("A"), ip(a2), leased("L"))}, []string{"quarantine 10.8.64.2", "report unleased 10.8.64.2"}},
		"quarantined, claimed by labels alone":          {lines{lease(a2, quarantine, ""), container("c1", owner("A"), ip(a2), runs)}, []string{"report unleased 10.8.64.2"}},

		// free or cooling | none | seen
		"free, a stranger on the wire":      {lines{seen(netns, a2, port("veth9"))}, []string{"quarantine 10.8.64.2"}},
		"free, the host has it":             {lines{seen(host, a2, port("rt0"))}, []string{"quarantine 10.8.64.2"}},
		"free, a neighbour lives":           {lines{seen(neighbour, a2)}, []string{"quarantine 10.8.64.2"}},
		"free, a container without owner":   {lines{container("c1", ip(a2), runs)}, []string{"quarantine 10.8.64.2"}},
		"cooling, a stranger on the wire":   {lines{lease(a2, cooling, "B"), seen(netns, a2)}, []string{"quarantine 10.8.64.2 B"}},
		"quarantined, still on the wire":    {lines{lease(a2, quarantine, ""), seen(netns, a2)}, nil},
		"the host has the gateway":          {lines{seen(host, "10.8.64.1", port("rt0"))}, nil},
		"free and seen, the rest is silent": {lines{seen(netns, a2), silent(runtime, neighbour)}, []string{"quarantine 10.8.64.2"}},

		// any | two workloads claim it | any (R7)
		"free, two sandboxes claim it": {lines{container("c1", owner("A"), ip(a2), runs), container("c2", owner("B"), ip(a2), runs)},
			[]string{"quarantine 10.8.64.2", "report two_claimants 10.8.64.2"}},
		"free, another claims it by a label":           {lines{lives("c1", "A", a2), container("c2", owner("B"), ip(a2))}, []string{"adopt 10.8.64.2 A", "report two_claimants 10.8.64.2"}},
		"free, another runs elsewhere and claims it":   {lines{lives("c1", "A", a2), container("c2", owner("B"), ip(a2), runs, home("veth9"))}, []string{"adopt 10.8.64.2 A", "report two_claimants 10.8.64.2"}},
		"free, another claims it whose lease is known": {lines{lives("c1", "A", a2), container("c2", owner("B"), ip(a2), leased("L"), known)}, []string{"adopt 10.8.64.2 A", "report two_claimants 10.8.64.2"}},
		"free, another claims it and answers for it":   {lines{container("c1", owner("A"), ip(a2), runs, home("veth1")), container("c2", owner("B"), ip(a2), runs, home("veth9")), seen(neighbour, a2, port("veth9"))}, []string{"quarantine 10.8.64.2", "report two_claimants 10.8.64.2"}},
		"free, another claims it by an ended lease":    {lines{container("c1", owner("A"), ip(a2), runs, home("veth1")), container("c2", owner("B"), ip(a2), leased("L"), known)}, []string{"quarantine 10.8.64.2", "report two_claimants 10.8.64.2"}},
		"free, another is in its namespace, unnamed":   {lines{lives("c1", "A", a2), container("c2", ip(a2), runs, home("veth-c1"))}, []string{"adopt 10.8.64.2 A", "report two_claimants 10.8.64.2"}},
		"free, another is in its namespace":            {lines{lives("c1", "A", a2), container("c2", owner("B"), ip(a2), runs, home("veth-c1"))}, []string{"quarantine 10.8.64.2", "report two_claimants 10.8.64.2"}},
		"free, another runs in the host's namespace":   {lines{lives("c1", "A", a2), container("c2", owner("B"), ip(a2), runs, home("")), seen(host, a2)}, []string{"quarantine 10.8.64.2", "report two_claimants 10.8.64.2"}},
		"free, another of its name in a namespace":     {lines{lives("c1", "A", a2), container("c2", owner("A"), ip(a2), runs, home("veth9"))}, []string{"adopt 10.8.64.2 A"}},
		"quarantined while none was asked, and another claims it by a label": {lines{lease(a2, quarantine, "", showing(seen(netns, a2, port("veth-c1")))), lives("c1", "A", a2, since(2*time.Hour)), container("c2", owner("B"), ip(a2), since(2*time.Hour))},
			[]string{"adopt 10.8.64.2 A", "report two_claimants 10.8.64.2"}},
		"quarantined for two, one by a label": {lines{lease(a2, quarantine, "", showing(lives("c1", "A", a2), container("c2", owner("B"), ip(a2)))), lives("c1", "A", a2, since(2*time.Hour)), container("c2", owner("B"), ip(a2), since(2*time.Hour))},
			[]string{"report two_claimants 10.8.64.2", "report unleased 10.8.64.2"}},
		"free, two have it": {lines{lives("c1", "A", a2), container("c2", owner("B"), ip(a2), runs, home("veth9")), seen(netns, a2, port("veth9"))}, []string{"quarantine 10.8.64.2", "report two_claimants 10.8.64.2"}},
		"free, two incarnations claim it": {lines{container("c1", owner("A"), as("1"), ip(a2), runs), container("c2", owner("A"), as("2"), ip(a2), runs)},
			[]string{"quarantine 10.8.64.2", "report two_claimants 10.8.64.2"}},
		"free, one incarnation in two spellings": {lines{lives("c1", "A", a2), container("c2", owner("A"), as("2"), ip(a2), runs)},
			[]string{"adopt 10.8.64.2 A"}},
		"free, two containers without owner": {lines{container("c1", ip(a2), runs), container("c2", ip(a2), runs)},
			[]string{"quarantine 10.8.64.2", "report two_claimants 10.8.64.2"}},
		"quarantined, two claim it": {lines{lease(a2, quarantine, ""), container("c1", owner("A"), ip(a2), runs), container("c2", owner("B"), ip(a2), runs)},
			[]string{"report two_claimants 10.8.64.2"}},
		"bound, its own and another claim it": {lines{lease(a2, bound, "A", containers("c1")), container("c1", owner("A"), ip(a2), frozen), container("c2", owner("B"), ip(a2), runs)},
			[]string{"pause 10.8.64.2 A", "report two_claimants 10.8.64.2"}},
		"bound, its own claims it and another lives with it": {lines{lease(a2, bound, "A", containers("c1")), container("c1", owner("A"), ip(a2), frozen), lives("c2", "B", a2)},
			[]string{"report two_claimants 10.8.64.2"}},
		"reserved, its own lives with it and another claims it by a label": {lines{lease(a2, reserved, "A"), lives("c1", "A", a2), container("c2", owner("B"), ip(a2), runs)},
			[]string{"bind 10.8.64.2 A", "report two_claimants 10.8.64.2"}},
		"reserved, its own and another claim it": {lines{lease(a2, reserved, "A"), container("c1", owner("A"), ip(a2), runs), container("c2", owner("B"), ip(a2), runs)},
			[]string{"report two_claimants 10.8.64.2"}},

		// bound to A | B claims it | any
		"bound, another claims it":     {lines{lease(a2, bound, "A", containers("c1")), container("c2", owner("B"), ip(a2), runs)}, []string{"report conflict 10.8.64.2"}},
		"paused, another claims it":    {lines{lease(a2, paused, "A"), container("c2", owner("B"), ip(a2), runs)}, []string{"report conflict 10.8.64.2"}},
		"releasing, another claims it": {lines{lease(a2, releasing, "A"), container("c2", owner("B"), ip(a2), runs)}, []string{"report conflict 10.8.64.2"}},
		"bound, behind another port":   {lines{lease(a2, bound, "A", on("veth1")), seen(netns, a2, port("veth9"))}, []string{"report conflict 10.8.64.2"}},
		"bound and overdue, another claims it": {lines{lease(a2, bound, "A", containers("c1")), overdue(a2), container("c2", owner("B"), ip(a2), runs)},
			[]string{"report conflict 10.8.64.2"}},
		"releasing, its own is left": {lines{lease(a2, releasing, "A", containers("c1")), container("c1", owner("A"), ip(a2), ended)}, nil},

		// reserved | runs | any
		"reserved, its workload runs":          {lines{lease(a2, reserved, "A"), lives("c1", "A", a2)}, []string{"bind 10.8.64.2 A"}},
		"reserved, past deadline, runs":        {lines{lease(a2, reserved, "A", age(11*time.Minute)), lives("c1", "A", a2)}, []string{"bind 10.8.64.2 A"}},
		"reserved, its workload is paused":     {lines{lease(a2, reserved, "A"), lives("c1", "A", a2, frozen)}, []string{"bind 10.8.64.2 A"}},
		"reserved, a virtual machine":          {lines{lease(a2, reserved, "A"), container("c1", owner("A"), ip(a2), runs, home("veth1")), seen(neighbour, a2, port("veth1"))}, []string{"bind 10.8.64.2 A"}},
		"reserved, it ran and ended":           {lines{lease(a2, reserved, "A"), container("c1", owner("A"), ip(a2), ended, leased("lease of 10.8.64.2"))}, []string{"bind 10.8.64.2 A"}},
		"reserved, named by its lease label":   {lines{lease(a2, reserved, "A"), container("c1", leased("lease of 10.8.64.2"), runs)}, []string{"bind 10.8.64.2 A"}},
		"reserved, made and not started":       {lines{lease(a2, reserved, "A", age(11*time.Minute)), container("c1", owner("A"), ip(a2), made)}, nil},
		"reserved, a record without a task":    {lines{lease(a2, reserved, "A", age(11*time.Minute)), container("c1", owner("A"), ip(a2))}, nil},
		"reserved, its sandbox runs elsewhere": {lines{lease(a2, reserved, "A", age(time.Minute)), lease(a3, bound, "A", containers("c1")), container("c1", owner("A"), ip(a3), runs)}, nil},
		"reserved, an older incarnation runs":  {lines{lease(a2, reserved, "A", uid("two")), container("c1", owner("A"), as("one"), ip(a2), runs)}, []string{"report conflict 10.8.64.2"}},
		"reserved, this incarnation runs":      {lines{lease(a2, reserved, "A", uid("two")), container("c1", owner("A"), as("two"), ip(a2), runs, home("veth1")), seen(netns, a2, port("veth1"))}, []string{"bind 10.8.64.2 A"}},
		"reserved, owned by the incarnation":   {lines{lease(a2, reserved, "A", uid("two")), lives("c1", "two", a2)}, []string{"bind 10.8.64.2 A"}},

		// G6: held | its sandbox's name alone | any
		"reserved, a label alone":                          {lines{lease(a2, reserved, "A"), container("c1", owner("A"), ip(a2), runs)}, nil},
		"reserved, past deadline, a label alone":           {lines{lease(a2, reserved, "A", age(11*time.Minute)), container("c1", owner("A"), ip(a2), runs)}, nil},
		"reserved, a label alone that ended":               {lines{lease(a2, reserved, "A"), container("c1", owner("A"), ip(a2), ended)}, nil},
		"reserved, its task lives elsewhere":               {lines{lease(a2, reserved, "A"), container("c1", owner("A"), ip(a2), runs, home("veth9")), seen(netns, a2, port("veth1"))}, nil},
		"reserved, no witness sees it yet":                 {lines{lease(a2, reserved, "A"), container("c1", owner("A"), ip(a2), runs, home("veth1"))}, nil},
		"reserved, two namespaces have it":                 {lines{lease(a2, reserved, "A"), lives("c1", "A", a2), seen(netns, a2, port("veth9"))}, nil},
		"bound to a port, a label alone":                   {lines{lease(a2, bound, "A", on("veth1")), container("c9", owner("A"), ip(a2), runs, home("veth9"))}, nil},
		"bound to a port, a label alone is paused":         {lines{lease(a2, bound, "A", on("veth1")), container("c9", owner("A"), ip(a2), frozen, home("veth9"))}, nil},
		"bound, it is paused, a label alone runs":          {lines{lease(a2, bound, "A", containers("c1")), container("c1", frozen), container("c9", owner("A"), ip(a2), runs)}, []string{"pause 10.8.64.2 A"}},
		"bound, it is paused, its second one runs":         {lines{lease(a2, bound, "A", on("veth1"), containers("c1")), container("c1", frozen, home("veth1")), container("c2", owner("A"), runs, home("veth1"))}, nil},
		"paused, a label alone runs":                       {lines{lease(a2, paused, "A", containers("c1")), container("c1", frozen), container("c9", owner("A"), ip(a2), runs)}, nil},
		"paused, what carries its id runs":                 {lines{lease(a2, paused, "A", containers("c1")), container("c1", frozen), container("c9", leased("lease of 10.8.64.2"), runs)}, []string{"resume 10.8.64.2 A"}},
		"free, a label alone is older":                     {lines{lease(a2, cooling, "B", age(5*time.Minute)), lives("c1", "A", a2), container("c9", owner("A"), ip(a2), since(time.Hour))}, []string{"adopt 10.8.64.2 A"}},
		"free, its lease is known, a label names another":  {lines{container("c1", owner("A"), ip(a2), leased("L"), known), container("c9", owner("A"), ip(a2), leased("M"))}, []string{"adopt 10.8.64.2 A"}},
		"free, it is paused, a label alone runs elsewhere": {lines{lives("c1", "A", a2, frozen), container("c9", owner("A"), ip(a2), runs, home("veth9"))}, []string{"adopt 10.8.64.2 A"}},

		// F22: bound by a port alone | runs | any
		"bound to a port alone, its workload runs":     {lines{lease(a2, bound, "A", on("veth1")), container("c1", owner("A"), ip(a2), runs, home("veth1"))}, []string{"bind 10.8.64.2 A"}},
		"bound to a port alone, another incarnation":   {lines{lease(a2, bound, "A", on("veth1"), uid("two")), container("c1", owner("A"), as("one"), runs)}, nil},
		"bound to a port alone, not started":           {lines{lease(a2, bound, "A", on("veth1")), container("c1", owner("A"), ip(a2), made)}, nil},
		"bound to a container, a second one runs, too": {lines{lease(a2, bound, "A", containers("c1")), container("c1", owner("A"), ip(a2), runs), container("c2", owner("A"), ip(a2), runs)}, nil},

		// reserved, past deadline | absent | unseen
		"reserved, in time":                    {lines{lease(a2, reserved, "A", age(10*time.Minute))}, nil},
		"reserved, past deadline":              {lines{lease(a2, reserved, "A", age(11*time.Minute))}, []string{"expire 10.8.64.2 A"}},
		"R5: half an hour of pulling an image": {lines{lease(a2, reserved, "A", age(30*time.Minute), within(time.Hour)), missed(a2, 3, time.Hour)}, nil},
		"reserved, past deadline, seen":        {lines{lease(a2, reserved, "A", age(11*time.Minute)), seen(netns, a2)}, []string{"report stray 10.8.64.2"}},
		"reserved, past deadline, its sandbox has another": {lines{lease(a2, reserved, "A", age(11*time.Minute)), lease(a3, bound, "A", containers("c1")),
			container("c1", owner("A"), ip(a3), runs)}, []string{"expire 10.8.64.2 A"}},
		"reserved, past deadline, a container is to come": {lines{lease(a2, reserved, "A", age(11*time.Minute)), lease(a3, bound, "A", containers("c1")),
			container("c1", owner("A"), ip(a3), runs), container("c2", owner("A"), made)}, nil},
		"reserved, past deadline, its container is of an old lease, too": {lines{lease(a2, reserved, "A", age(11*time.Minute)), lease(a3, releasing, "A", containers("c1")),
			container("c1", leased("lease of 10.8.64.2"))}, nil},
		"reserved, in time, seen":                 {lines{lease(a2, reserved, "A", age(time.Minute)), seen(netns, a2)}, nil},
		"reserved, past deadline, runtime silent": {lines{lease(a2, reserved, "A", age(11*time.Minute)), silent(runtime)}, nil},
		"reserved, past deadline, on news":        {lines{lease(a2, reserved, "A", age(11*time.Minute)), onNews}, nil},
		"reserved, past deadline, no runtime":     {lines{lease(a2, reserved, "A", age(11*time.Minute)), noRuntime}, []string{"expire 10.8.64.2 A"}},

		// reserved or bound, absent | absent | seen
		"bound, its container is gone, seen": {lines{lease(a2, bound, "A", containers("c1"), on("veth1")), overdue(a2), seen(netns, a2, port("veth1"))}, []string{"report stray 10.8.64.2"}},
		"bound to a port alone, seen":        {lines{lease(a2, bound, "A", on("veth1")), seen(netns, a2, port("veth1"))}, nil},
		"bound, seen, the runtime is silent": {lines{lease(a2, bound, "A", containers("c1")), seen(netns, a2), silent(runtime)}, nil},
		"bound, seen, there is no runtime":   {lines{lease(a2, bound, "A", containers("c1")), seen(netns, a2), noRuntime}, nil},

		// bound | absent for long enough | unseen
		"bound, overdue":                                                 {lines{container("other"), lease(a2, bound, "A", containers("c1")), overdue(a2)}, []string{"reap 10.8.64.2 A"}},
		"bound, missed twice":                                            {lines{container("other"), lease(a2, bound, "A", containers("c1")), missed(a2, 1, time.Hour)}, nil},
		"bound, missed often in a short time":                            {lines{container("other"), lease(a2, bound, "A", containers("c1")), missed(a2, 3, 15*time.Minute-1)}, nil},
		"bound, never missed":                                            {lines{container("other"), lease(a2, bound, "A", containers("c1"))}, nil},
		"bound, overdue, its record stands":                              {lines{lease(a2, bound, "A", containers("c1")), overdue(a2), container("c1")}, nil},
		"bound, overdue, labelled by owner":                              {lines{lease(a2, bound, "A", containers("c1")), overdue(a2), container("c2", owner("A"))}, nil},
		"bound, overdue, labelled by uid":                                {lines{lease(a2, bound, "A", uid("one"), containers("c1")), overdue(a2), container("c2", owner("one"))}, nil},
		"bound, overdue, labelled by lease":                              {lines{lease(a2, bound, "A", containers("c1")), overdue(a2), container("c2", leased("lease of 10.8.64.2"))}, nil},
		"bound, overdue, on news":                                        {lines{container("other"), lease(a2, bound, "A", containers("c1")), overdue(a2), onNews}, nil},
		"bound, overdue, without containers":                             {lines{container("other"), lease(a2, bound, "A", on("veth1")), overdue(a2)}, []string{"reap 10.8.64.2 A"}},
		"bound, overdue, never seen":                                     {lines{lease(a2, bound, "A", neverSeen), overdue(a2), noRuntime}, nil},
		"bound, overdue, never seen in this boot, of which an era began": {lines{lease(a2, bound, "A", neverSeen), overdue(a2), noRuntime, nextEra}, nil},
		"bound, overdue, never looked for":                               {lines{lease(a2, bound, "A", neverLookedFor), overdue(a2), noRuntime}, nil},
		"bound, overdue, never looked for, another boot":                 {lines{lease(a2, bound, "A", neverLookedFor, func(l *ipam.Lease) { l.Since.BootID = "the boot before" }), overdue(a2), noRuntime}, []string{"reap 10.8.64.2 A"}},
		"bound, never looked for, seen":                                  {lines{lease(a2, bound, "A", neverLookedFor, on("veth1")), seen(netns, a2, port("veth1")), noRuntime}, []string{"bind 10.8.64.2 A"}},
		"bound, never looked for, a MAC is seen":                         {lines{lease(a2, bound, "A", neverLookedFor, mac("02:00:00:00:00:01")), seen(netns, a2, hw("02:00:00:00:00:01"), port("veth1")), noRuntime}, []string{"bind 10.8.64.2 A"}},
		"bound, overdue, never seen, containers":                         {lines{container("other"), lease(a2, bound, "A", neverSeen, containers("c1")), overdue(a2)}, []string{"reap 10.8.64.2 A"}},
		"bound, never seen until now":                                    {lines{lease(a2, bound, "A", neverSeen, on("veth1")), seen(netns, a2, port("veth1")), noRuntime}, []string{"bind 10.8.64.2 A"}},
		"bound by its MAC, seen":                                         {lines{lease(a2, bound, "A", neverSeen, mac(hers)), seen(netns, a2, hw(hers), port("veth9"))}, []string{"bind 10.8.64.2 A"}},
		"bound by its MAC, a container's port has it":                    {lines{lease(a2, bound, "A", neverSeen, mac(hers)), seen(netns, a2, hw(hers), port("veth9")), lease(a3, bound, "B", containers("c2")), container("c2", runs, home("veth9"))}, nil},
		"bound by its MAC, a container lives elsewhere":                  {lines{lease(a2, bound, "A", neverSeen, mac(hers)), seen(netns, a2, hw(hers), port("veth9")), lease(a3, bound, "B", containers("c2")), container("c2", runs, home("veth8"))}, []string{"bind 10.8.64.2 A"}},
		"bound, never seen, a stranger is":                               {lines{lease(a2, bound, "A", neverSeen, on("veth1")), seen(netns, a2, port("veth2")), noRuntime}, []string{"report conflict 10.8.64.2"}},
		"no runtime to ask, containers recorded":                         {lines{lease(a2, bound, "A", containers("c1")), overdue(a2), noRuntime}, nil},
		"no runtime to ask, none recorded":                               {lines{lease(a2, bound, "A", on("veth1")), overdue(a2), noRuntime}, []string{"reap 10.8.64.2 A"}},
		"paused, its container is gone":                                  {lines{container("other"), lease(a2, paused, "A", containers("c1")), missed(a2, 3, time.Hour)}, nil},
		"releasing is the watchdog's":                                    {lines{container("other"), lease(a2, releasing, "A", containers("c1")), missed(a2, 3, time.Hour)}, nil},
		"R5: the misses of another lease":                                {lines{container("other"), lease(a2, bound, "B", func(l *ipam.Lease) { l.ID = "B's" }), missed(a2, 3, time.Hour)}, nil},

		// bound | paused or running | any
		"bound, all are paused":                      {lines{lease(a2, bound, "A", containers("c1")), container("c1", owner("A"), ip(a2), frozen)}, []string{"pause 10.8.64.2 A"}},
		"bound a moment ago, paused before, on news": {lines{lease(a2, bound, "A", containers("c1"), age(59*time.Second)), container("c1", owner("A"), ip(a2), frozen, since(2*time.Minute)), onNews}, nil},
		"bound a minute ago, paused before, on news": {lines{lease(a2, bound, "A", containers("c1"), age(time.Minute)), container("c1", owner("A"), ip(a2), frozen, since(2*time.Minute)), onNews}, []string{"pause 10.8.64.2 A"}},
		"bound, one of two is paused":                {lines{lease(a2, bound, "A", containers("c1", "c2")), container("c1", frozen), container("c2", runs)}, nil},
		"bound, paused but for an ended one":         {lines{lease(a2, bound, "A", containers("c1", "c2")), container("c1", frozen), container("c2", ended)}, []string{"pause 10.8.64.2 A"}},
		"bound, one task is unknown":                 {lines{lease(a2, bound, "A", containers("c1", "c2")), container("c1", frozen), container("c2")}, nil},
		"bound, all ended":                           {lines{lease(a2, bound, "A", containers("c1")), container("c1", ended)}, nil},
		"paused, one runs":                           {lines{lease(a2, paused, "A", containers("c1", "c2")), container("c1", frozen), container("c2", runs)}, []string{"resume 10.8.64.2 A"}},
		"paused, all are":                            {lines{lease(a2, paused, "A", containers("c1")), container("c1", frozen)}, nil},
		"paused, no task":                            {lines{lease(a2, paused, "A", containers("c1")), container("c1")}, nil},
		"paused, runs, the runtime is silent":        {lines{lease(a2, paused, "A", containers("c1")), container("c1", runs), silent(runtime)}, nil},
		"paused by its client a moment ago":          {lines{lease(a2, paused, "A", containers("c1"), age(time.Second)), container("c1", runs), onNews}, nil},
		"and still running in a whole pass":          {lines{lease(a2, paused, "A", containers("c1"), age(time.Second)), container("c1", runs)}, nil},
		"and running, by a daemon's start":           {lines{lease(a2, paused, "A", containers("c1"), age(59*time.Second)), container("c1", runs, since(time.Second)), onNews}, nil},
		"and resumed since":                          {lines{lease(a2, paused, "A", containers("c1"), age(2*time.Second)), container("c1", runs, thawed(time.Second)), onNews}, []string{"resume 10.8.64.2 A"}},
		"and made anew since":                        {lines{lease(a2, paused, "A", containers("c1"), age(2*time.Second)), container("c1", runs, fresh(time.Second))}, []string{"resume 10.8.64.2 A"}},
		"and running a minute later":                 {lines{lease(a2, paused, "A", containers("c1"), age(time.Minute)), container("c1", runs)}, []string{"resume 10.8.64.2 A"}},
		"paused by a pass a moment ago, runs":        {lines{lease(a2, paused, "A", containers("c1"), age(time.Second), func(l *ipam.Lease) { l.Reason = ipam.RuntimePaused }), container("c1", runs)}, []string{"resume 10.8.64.2 A"}},
		"paused in another boot, runs":               {lines{lease(a2, paused, "A", containers("c1"), func(l *ipam.Lease) { l.Since.BootID = "the boot before" }), container("c1", runs)}, []string{"resume 10.8.64.2 A"}},
		"resumed by the runtime, on news":            {lines{lease(a2, paused, "A", containers("c1")), container("c1", runs), onNews}, []string{"resume 10.8.64.2 A"}},

		"its wall clock was set back, on news": {lines{lease(a2, paused, "A", containers("c1"), func(l *ipam.Lease) { l.Since.Wall = l.Since.Wall.Add(2 * time.Hour) }),
			container("c1", runs), onNews}, []string{"resume 10.8.64.2 A"}},
		"its wall clock was set ahead, on news": {lines{lease(a2, paused, "A", containers("c1"), age(time.Second), func(l *ipam.Lease) { l.Since.Wall = l.Since.Wall.Add(-2 * time.Hour) }),
			container("c1", runs), onNews}, nil},
		"paused, the first of two is frozen, on news": {lines{lease(a2, paused, "A", containers("c1", "c2"), age(time.Second)), container("c1", frozen, since(0)), container("c2", runs), onNews}, nil},

		// paused by an owner who has said how | runs | any
		"to be frozen, still running":                     {lines{lease(a2, paused, "A", containers("c1")), stopping(a2, ipam.Freeze), container("c1", runs)}, nil},
		"to be frozen, seen to run later":                 {lines{lease(a2, paused, "A", containers("c1")), stopping(a2, ipam.Freeze), container("c1", runs), onNews}, nil},
		"to be frozen, running before":                    {lines{lease(a2, paused, "A", containers("c1"), age(time.Second)), stopping(a2, ipam.Freeze), container("c1", runs, thawed(time.Minute))}, nil},
		"to be frozen, known late to run":                 {lines{lease(a2, paused, "A", containers("c1")), stopping(a2, ipam.Freeze), container("c1", runs, since(time.Minute))}, nil},
		"to be frozen, resumed since":                     {lines{lease(a2, paused, "A", containers("c1")), stopping(a2, ipam.Freeze), container("c1", runs, thawed(time.Minute))}, []string{"resume 10.8.64.2 A"}},
		"to be frozen, stood still since":                 {lines{lease(a2, paused, "A", containers("c1")), stopping(a2, ipam.Freeze), container("c1", runs, stood(time.Minute))}, []string{"resume 10.8.64.2 A"}},
		"to be frozen, stood still before":                {lines{lease(a2, paused, "A", containers("c1"), age(time.Second)), stopping(a2, ipam.Freeze), container("c1", runs, stood(time.Minute))}, nil},
		"to hibernate, stood still for its checkpoint":    {lines{lease(a2, paused, "A", containers("c1")), stopping(a2, ipam.Hibernate), container("c1", runs, stood(time.Minute))}, nil},
		"to be frozen, made anew since":                   {lines{lease(a2, paused, "A", containers("c1")), stopping(a2, ipam.Freeze), container("c1", runs, fresh(time.Minute))}, []string{"resume 10.8.64.2 A"}},
		"to be frozen, made before":                       {lines{lease(a2, paused, "A", containers("c1"), age(time.Second)), stopping(a2, ipam.Freeze), container("c1", runs, fresh(time.Minute))}, nil},
		"to be frozen in another boot, runs":              {lines{lease(a2, paused, "A", containers("c1"), func(l *ipam.Lease) { l.Since.BootID = "the boot before" }), stopping(a2, ipam.Freeze), container("c1", runs)}, []string{"resume 10.8.64.2 A"}},
		"to be frozen in another era of the boot, runs":   {lines{lease(a2, paused, "A", containers("c1"), func(l *ipam.Lease) { l.Since.BootID += "+1" }), stopping(a2, ipam.Freeze), container("c1", runs)}, nil},
		"to be frozen in another era, absent":             {lines{lease(a2, paused, "A"), stopping(a2, ipam.Freeze), overdue(a2), noRuntime, nextEra}, nil},
		"to be frozen in another boot, absent":            {lines{lease(a2, paused, "A", func(l *ipam.Lease) { l.Since.BootID = "the boot before" }), stopping(a2, ipam.Freeze), overdue(a2), noRuntime}, []string{"reap 10.8.64.2 A"}},
		"woken in vain, of no mode, in another boot":      {lines{lease(a2, paused, "A", func(l *ipam.Lease) { l.Since.BootID = "the boot before" }), noMode(a2), overdue(a2), noRuntime}, nil},
		"to be frozen, frozen":                            {lines{lease(a2, paused, "A", containers("c1")), stopping(a2, ipam.Freeze), container("c1", frozen), onNews}, []string{"still 10.8.64.2 A"}},
		"to be frozen, one of two is":                     {lines{lease(a2, paused, "A", containers("c1", "c2")), stopping(a2, ipam.Freeze), container("c1", frozen, since(time.Minute)), container("c2", runs)}, nil},
		"to be frozen, gone":                              {lines{lease(a2, paused, "A", containers("c1")), stopping(a2, ipam.Freeze)}, []string{"still 10.8.64.2 A"}},
		"to be frozen, not known":                         {lines{lease(a2, paused, "A", containers("c1")), stopping(a2, ipam.Freeze), container("c1", unclear)}, nil},
		"to be frozen, a label alone runs":                {lines{lease(a2, paused, "A", containers("c1")), stopping(a2, ipam.Freeze), container("c1", frozen), container("c9", owner("A"), runs, home("veth9"))}, []string{"still 10.8.64.2 A"}},
		"to be frozen, its own runs, at an unknown place": {lines{lease(a2, paused, "A", on("veth1")), stopping(a2, ipam.Freeze), container("c1", owner("A"), runs)}, nil},
		"to be frozen, another's runs elsewhere":          {lines{lease(a2, paused, "A", on("veth1")), stopping(a2, ipam.Freeze), container("c1", owner("A"), runs, home("veth9"))}, []string{"still 10.8.64.2 A"}},
		"to be frozen, gone, the runtime is silent":       {lines{lease(a2, paused, "A", containers("c1")), stopping(a2, ipam.Freeze), silent(runtime)}, nil},
		"to be frozen, gone from another runtime":         {lines{lease(a2, paused, "A", containers("c1")), stopping(a2, ipam.Freeze), anotherRuntime}, nil},
		"to be frozen, there is no runtime":               {lines{lease(a2, paused, "A", containers("c1")), stopping(a2, ipam.Freeze), noRuntime}, nil},
		"to hibernate, still running":                     {lines{lease(a2, paused, "A", containers("c1")), stopping(a2, ipam.Hibernate), container("c1", runs)}, nil},
		"to hibernate, frozen for its checkpoint":         {lines{lease(a2, paused, "A", containers("c1")), stopping(a2, ipam.Hibernate), container("c1", frozen)}, nil},
		"to hibernate, resumed after its checkpoint":      {lines{lease(a2, paused, "A", containers("c1")), stopping(a2, ipam.Hibernate), container("c1", runs, thawed(time.Minute))}, nil},
		"to hibernate, ended":                             {lines{lease(a2, paused, "A", containers("c1")), stopping(a2, ipam.Hibernate), container("c1", ended)}, []string{"still 10.8.64.2 A"}},
		"to hibernate, gone":                              {lines{lease(a2, paused, "A", containers("c1")), stopping(a2, ipam.Hibernate), onNews}, []string{"still 10.8.64.2 A"}},
		"to hibernate, made anew since":                   {lines{lease(a2, paused, "A", containers("c1")), stopping(a2, ipam.Hibernate), container("c1", runs, fresh(time.Minute)), onNews}, []string{"resume 10.8.64.2 A"}},
		"to hibernate in another boot, runs":              {lines{lease(a2, paused, "A", containers("c1"), func(l *ipam.Lease) { l.Since.BootID = "the boot before" }), stopping(a2, ipam.Hibernate), container("c1", runs)}, []string{"resume 10.8.64.2 A"}},
		"to hibernate, made before":                       {lines{lease(a2, paused, "A", containers("c1"), age(time.Second)), stopping(a2, ipam.Hibernate), container("c1", runs, fresh(time.Minute))}, nil},

		// quarantined, unseen long enough | none | unseen
		"quarantined, unseen for long enough":           {lines{lease(a2, quarantine, ""), dim(a2, 2, 15*time.Minute)}, []string{"clear 10.8.64.2"}},
		"quarantined, unseen, on news":                  {lines{lease(a2, quarantine, ""), dim(a2, 3, time.Hour), onNews}, nil},
		"quarantined, unseen for too short":             {lines{lease(a2, quarantine, ""), dim(a2, 2, 14*time.Minute)}, nil},
		"quarantined, unseen, a witness silent":         {lines{lease(a2, quarantine, ""), dim(a2, 3, time.Hour), silent(neighbour)}, nil},
		"quarantined and unseen, its container is left": {lines{lease(a2, quarantine, "A", containers("c1")), dim(a2, 3, time.Hour), container("c1")}, nil},
		"quarantined by an operator, unseen":            {lines{lease(a2, quarantine, "", setAside), dim(a2, 3, time.Hour)}, nil},
		"quarantined, unseen, its sandbox's name":       {lines{lease(a2, quarantine, "A"), dim(a2, 2, 15*time.Minute)}, []string{"clear 10.8.64.2 A"}},
	} {
		t.Run(name, func(t *testing.T) { expect(t, worldOf(tt.world...), tt.want...) })
	}
}

// A container with the name of a paused sandbox, to whose own namespace the address of that
// was added, does not wake its lease, which would be reaped once that container is gone.
func TestG6AnAddressThatIsTakenWakesNoLease(t *testing.T) {
	const a2 = "10.8.64.2"
	impostor := lives("c9", "A", a2)
	for name, tt := range map[string]struct {
		world []line
		want  []string
	}{
		"paused, of no container":         {[]line{lease(a2, paused, "A"), impostor}, nil},
		"paused, its container has ended": {[]line{lease(a2, paused, "A", containers("c1")), container("c1"), impostor}, nil},
		"paused, its container is frozen": {[]line{lease(a2, paused, "A", containers("c1")), lives("c1", "A", a2, frozen), impostor}, nil},
		"paused, its container runs":      {[]line{lease(a2, paused, "A", containers("c1")), lives("c1", "A", a2), impostor}, []string{"resume 10.8.64.2 A"}},
		"paused, runs behind its port":    {[]line{lease(a2, paused, "A", on("veth-c1")), lives("c1", "A", a2)}, []string{"resume 10.8.64.2 A"}},
	} {
		t.Run(name, func(t *testing.T) { expect(t, worldOf(tt.world...), tt.want...) })
	}
}

// A port that is not recorded as the link that it is now is recorded, for a lease that
// is used and whose port no other sandbox's lease records.
func TestG4APortThatIsNotKnownIsRecorded(t *testing.T) {
	const a2, a3, six = "10.8.64.2", "10.8.64.3", "fd00:8:64::2"
	pooled := func(p string) func(*ipam.Lease) { return func(l *ipam.Lease) { l.PoolUID = p } }
	for name, tt := range map[string]struct {
		world []line
		want  []string
	}{
		"bound":                        {[]line{lease(a2, bound, "A", on("tap0"))}, []string{"bind 10.8.64.2 A"}},
		"paused":                       {[]line{lease(a2, paused, "A", on("tap0"))}, []string{"bind 10.8.64.2 A"}},
		"known":                        {[]line{lease(a2, bound, "A", on("tap1"))}, nil},
		"without a port":               {[]line{lease(a2, bound, "A")}, nil},
		"a container runs, too":        {[]line{lease(a2, bound, "A", on("tap0")), container("c1", owner("A"), ip(a2), runs)}, []string{"bind 10.8.64.2 A"}},
		"releasing":                    {[]line{lease(a2, releasing, "A", on("tap0"))}, nil},
		"two record it":                {[]line{lease(a2, bound, "A", on("tap0")), lease(a3, bound, "B", on("tap0"))}, nil},
		"its predecessor is releasing": {[]line{lease(a2, releasing, "A", on("tap0")), lease(a3, bound, "A", on("tap0"), uid("A-2"))}, nil},
		"its predecessor of one uid is releasing": {[]line{lease(a2, releasing, "A", on("tap0")), lease(a3, bound, "A", on("tap0"))}, nil},
		"both families of it": {[]line{lease(a2, bound, "A", on("tap0")), lease(six, bound, "A", on("tap0"), pooled("six"))},
			[]string{"bind 10.8.64.2 A", "bind fd00:8:64::2 A"}},
		"both of its interfaces": {[]line{lease(a2, bound, "A", on("tap0")), lease(a3, bound, "A", on("tap0"), func(l *ipam.Lease) { l.Interface = "eth1" })},
			[]string{"bind 10.8.64.2 A", "bind 10.8.64.3 A"}},
		"both families, of two incarnations": {[]line{lease(a2, bound, "A", on("tap0")), lease(six, bound, "A", on("tap0"), pooled("six"), uid("A-2"))}, nil},
		"both families, and another sandbox": {[]line{lease(a2, bound, "A", on("tap0")), lease(six, bound, "A", on("tap0"), pooled("six")), lease(a3, bound, "B", on("tap0"))}, nil},
		"one that cools does not count":      {[]line{lease(a2, cooling, "A", on("tap0")), lease(a3, bound, "A", on("tap0"))}, []string{"bind 10.8.64.3 A"}},
	} {
		w := worldOf(tt.world...)
		w.unrecordedPlumbing = func(l *ipam.Lease) (n ipam.Binding) {
			if l.HostInterface == "tap0" {
				n.HostInterface = "tap0"
			}
			return n
		}
		t.Run(name, func(t *testing.T) { expect(t, w, tt.want...) })
	}
}

// That a port was there before its witness fell silent does not show that the sandbox was seen.
func TestAPortOfASilentWitnessIsNotSeen(t *testing.T) {
	for name, tt := range map[string]struct {
		silent []line
		want   bool
	}{
		"all speak":           {nil, true},
		"the netns is silent": {[]line{silent(netns)}, false},
		"another is silent":   {[]line{silent(runtime)}, true},
	} {
		w := worldOf(append(tt.silent, lease("10.8.64.2", bound, "A", on("tap0")))...)
		w.unrecordedPlumbing = func(l *ipam.Lease) ipam.Binding { return ipam.Binding{HostInterface: "tap0", Seen: true} }
		t.Run(name, func(t *testing.T) {
			d := expect(t, w, "bind 10.8.64.2 A")
			if got := d.steps[0].bind.Seen; got != tt.want {
				t.Errorf("recorded as seen: %v", got)
			}
		})
	}
}

// A namespace that the kernel did not say when it was bound is asked for again, unless another sandbox's lease records its path.
func TestG4ANamespaceThatWasNotSaidIsAskedFor(t *testing.T) {
	const a2, a3 = "10.8.64.2", "10.8.64.3"
	in := func(path string) func(*ipam.Lease) { return func(l *ipam.Lease) { l.Netns = path } }
	for name, tt := range map[string]struct {
		world []line
		want  []string
	}{
		"bound":              {[]line{lease(a2, bound, "A", in("/run/netns/a"))}, []string{"bind 10.8.64.2 A"}},
		"beside another's":   {[]line{lease(a2, bound, "A", in("/run/netns/a")), lease(a3, bound, "B")}, []string{"bind 10.8.64.2 A"}},
		"two record it":      {[]line{lease(a2, bound, "A", in("/run/netns/a")), lease(a3, releasing, "B", in("/run/netns/a"))}, nil},
		"both interfaces do": {[]line{lease(a2, bound, "A", in("/run/netns/a")), lease(a3, bound, "A", in("/run/netns/a"), func(l *ipam.Lease) { l.Interface = "eth1" })}, []string{"bind 10.8.64.2 A", "bind 10.8.64.3 A"}},
		"releasing":          {[]line{lease(a2, releasing, "A", in("/run/netns/a"))}, nil},
	} {
		w := worldOf(tt.world...)
		w.unrecordedPlumbing = func(l *ipam.Lease) (n ipam.Binding) {
			n.Plug.Unsaid = 1
			n.Netns = l.Netns
			return n
		}
		t.Run(name, func(t *testing.T) { expect(t, w, tt.want...) })
	}
}

// R3: whichever witness is silent, nothing of what a complete census releases
// is released; what keeps addresses goes on.
func TestNothingIsFreedWhileAWitnessIsSilent(t *testing.T) {
	lines := []line{
		lease("10.8.64.2", bound, "A", containers("c1")), overdue("10.8.64.2"), lookedUp("10.8.64.2"),
		lease("10.8.64.3", reserved, "B", age(time.Hour)),
		lease("10.8.64.4", quarantine, ""), dim("10.8.64.4", 3, time.Hour),
		lives("c5", "E", "10.8.64.5"),
		lease("10.8.64.6", reserved, "F"), lives("c6", "F", "10.8.64.6"),
		seen(netns, "10.8.64.7"),
	}
	keeps := []string{"adopt 10.8.64.5 E", "bind 10.8.64.6 F", "quarantine 10.8.64.7"}
	expect(t, worldOf(lines...), append([]string{"reap 10.8.64.2 A", "expire 10.8.64.3 B", "clear 10.8.64.4"}, keeps...)...)
	for _, w := range []census.Witness{runtime, netns, host, neighbour, "reading"} {
		for name, how := range map[string]line{"": func(*world) {}, ", an operator confirms": confirmed} {
			t.Run(string(w)+" is silent"+name, func(t *testing.T) {
				in := worldOf(append(slices.Clone(lines), silent(w), how)...)
				d := expect(t, in, keeps...)
				if d.missed["lease of 10.8.64.2"] != in.known.missed["lease of 10.8.64.2"] {
					t.Errorf("the pass counted: %+v", d.missed)
				}
			})
		}
	}
}

// What is adopted or bound is bound to all that is known: the containers that
// claim it, the port and the MAC of the one namespace that has it.
func TestWhatIsBoundIsKnown(t *testing.T) {
	const a2 = "10.8.64.2"
	mac := func(b *body) { b.MAC = "02:00:00:00:00:01" }
	for name, more := range map[string]struct {
		lines []line
		port  string // where one alone has it
		c1    string // the port behind which it lives
		c2    string
	}{
		"one namespace has it": {[]line{seen(netns, a2, port("veth1"), mac)}, "veth1", "veth1", "veth1"},
		"none has it":          {[]line{seen(neighbour, a2, port("veth3"), mac)}, "", "veth3", "veth3"},
	} {
		t.Run(name, func(t *testing.T) {
			lines := append(more.lines, container("c2", owner("A"), as("u"), ip(a2), frozen, leased("L"), home(more.c2)), container("c1", owner("A"), ip(a2), frozen, home(more.c1)),
				container("c3", owner("A"), ip("10.8.64.3"), frozen))
			d := worldOf(lines...).decide()
			if len(d.steps) != 2 {
				t.Fatalf("decided %q", d.list())
			}
			a := d.steps[0].adopt
			want := []ipam.Container{{Namespace: "default", ID: "c1"}, {Namespace: "default", ID: "c2"}}
			if !slices.Equal(a.Containers, want) || a.HostInterface != more.port || (a.MAC != "") != (more.port != "") || a.Netns != "" {
				t.Errorf("bound to %+v", a.Binding)
			}
			if a.Sandbox != "A" || a.UID != "u" || a.ID != "L" || a.Rev != 0 || !d.steps[0].paused || len(a.Evidence) == 0 {
				t.Errorf("adopted as %+v, paused %v", a, d.steps[0].paused)
			}
			d = worldOf(append(lines, lease(a2, reserved, "A", uid("u")))...).decide()
			if b := d.steps[0].bind; d.steps[0].Kind != Bind || !slices.Equal(b.Containers, want) || b.HostInterface != more.port {
				t.Errorf("%s to %+v", d.steps[0].Kind, b)
			}
		})
	}
	w := worldOf(lease(a2, cooling, "B"), lives("c1", "A", a2, leased("L1")), container("c2", owner("A"), ip(a2), leased("L2"), runs, home("veth-c1")))
	if a := w.decide().steps[0].adopt; a.ID != "" || a.Rev != 7 {
		t.Errorf("with two lease labels, on a row at 7: %+v", a)
	}
}
