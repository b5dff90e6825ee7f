package workload

import (
	"strings"
	"testing"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

// What keeps a lease whose sandbox no witness sees, and when nothing of it is left: a recorded index may be
// of another sandbox's link by now, a link made anew has another one, and of what is not known nothing follows.
func TestTrace(t *testing.T) {
	const boot, mac, another = "boot", "02:00:00:00:00:01", "02:00:00:00:00:99"
	bound := ipam.Lease{ID: "1", Sandbox: "a", UID: "a-1", State: ipam.Bound, HostInterface: "veth1", Netns: "/run/netns/a", MAC: mac,
		Plug: ipam.Plug{Boot: boot, Index: 7, At: 1, Inode: 70}}
	released := bound
	released.State = ipam.Releasing
	unnamed := bound
	unnamed.HostInterface, unnamed.Plug = "", ipam.Plug{Boot: boot, At: 1, Inode: 70, Behind: 7}
	unnamedReleased := unnamed
	unnamedReleased.State = ipam.Releasing
	former := unnamed
	former.State, former.Reason = ipam.Quarantined, ipam.Rebuilt
	bare := unnamed
	bare.MAC = ""
	older := bound
	older.Plug = ipam.Plug{}
	before := bound
	before.Plug.Boot = "another boot"
	noNetns := bound
	noNetns.Netns, noNetns.Plug.Inode = "", 0
	noMAC := bound
	noMAC.MAC = ""
	noMACReleased := noMAC
	noMACReleased.State = ipam.Releasing
	bareReleased := bare
	bareReleased.State = ipam.Releasing
	noLink := bound
	noLink.Plug.Index = 0
	noInode := noLink
	noInode.Plug.Inode = 0
	noName := noLink
	noName.HostInterface = ""
	taker := &ipam.Lease{ID: "2", Sandbox: "b", UID: "b-1", State: ipam.Bound, Plug: ipam.Plug{Boot: boot, Index: 7, At: 2}}
	stale := &ipam.Lease{ID: "3", Sandbox: "c", UID: "c-1", State: ipam.Paused, HostInterface: "veth3", Plug: ipam.Plug{Boot: boot, Index: 7}}
	inside := &ipam.Lease{ID: "4", Sandbox: "d", UID: "d-1", State: ipam.Bound, Netns: bound.Netns, Plug: ipam.Plug{Boot: boot, Inode: 70, Behind: 7, At: 9}}

	port := func(name, mac string) *census.HostLink {
		return &census.HostLink{Index: 7, Name: name, Bridge: "rt0", Watched: true, Leads: true, MAC: mac}
	}
	elsewhere := port("veth1", mac)
	elsewhere.Bridge, elsewhere.Watched = "docker0", false
	loose := port("veth1", mac)
	loose.Bridge, loose.Watched = "", false
	lives := *loose
	lives.Inside = "a namespace with 10.8.0.2"
	anew := lives
	anew.Index = 9
	later := *port("veth1", another)
	later.Index = 9
	passed, had := *taker, *stale
	passed.HostInterface, passed.Plug.Index, had.Plug.Index = "veth1", 9, 9
	named := passed
	named.Plug.Index = 7
	hidden := port("veth9", "")
	hidden.Hidden = true
	tap := &census.HostLink{Index: 7, Name: "tap9", Bridge: "rt0", Watched: true, Tap: true}

	elsewhereNow := &census.Other{Inode: 71}
	machine := &census.Other{Inode: 71, Inside: "a namespace with a tap that is open, tap0"}
	in71 := *inside
	in71.Plug.Inode = 71

	houses := port("veth9", another)
	houses.Inside = "a namespace with 10.8.0.2"
	strange := port("veth9", another)
	strange.Bridge, strange.Watched = "docker0", false

	for name, tt := range map[string]struct {
		lease     ipam.Lease
		other     *ipam.Lease
		left      census.Remains
		keeps     string
		there     bool // its link, though it keeps no lease by that
		passedOn  bool // its name, which ends a quarantine
		unplugged bool
		ended     bool
	}{
		"nothing is left":                        {lease: bound, ended: true},
		"nothing, and no namespace was recorded": {lease: noNetns},
		"nothing, and the link is not known":     {lease: older},
		"nothing, and the link never came":       {lease: noLink, ended: true},
		"a link of its name came":                {lease: noLink, left: census.Remains{Named: port("veth1", mac)}, keeps: "veth1 is a port"},
		"nothing, and neither ever came":         {lease: noInode, ended: true},
		"a namespace that may be its own":        {lease: noInode, left: census.Remains{Netns: true}},
		"nothing, and no link is named":          {lease: noName},
		"of another boot":                        {lease: before},
		"its namespace is there":                 {lease: bound, left: census.Remains{Netns: true}},
		"and it lives in there":                  {lease: bound, left: census.Remains{Netns: true, Inside: "a namespace with 10.8.0.2"}, keeps: "behind no port of a bridge"},
		"another namespace is at its path":       {lease: bound, left: census.Remains{Other: elsewhereNow}, ended: true},
		"with a machine, which may be its own":   {lease: bound, left: census.Remains{Other: machine}, keeps: "is another namespace since it was recorded, and is a namespace with a tap"},
		"of one that is held back":               {lease: former, left: census.Remains{Other: machine}, keeps: "is another namespace since it was recorded"},
		"of one that is released":                {lease: released, left: census.Remains{Other: machine}, ended: true},
		"which another's lease records":          {lease: bound, other: &in71, left: census.Remains{Other: machine}, ended: true},

		"its link is a port elsewhere":               {lease: bound, left: census.Remains{Link: elsewhere}, keeps: "veth1 is a port of docker0, which is not looked after"},
		"its link is unplugged":                      {lease: bound, left: census.Remains{Link: loose}, there: true, unplugged: true},
		"its link is a port":                         {lease: bound, left: census.Remains{Link: port("veth1", mac)}, keeps: "veth1 is a port of rt0"},
		"and it lives behind that":                   {lease: bound, left: census.Remains{Link: &lives}, keeps: "veth1 is a port of no bridge, and leads to a namespace with 10.8.0.2", unplugged: true},
		"its link was renamed":                       {lease: bound, left: census.Remains{Link: port("veth9", mac)}, keeps: "veth9, which has another name"},
		"and shows no MAC":                           {lease: bound, left: census.Remains{Link: hidden}, keeps: "another name"},
		"a tap was renamed":                          {lease: bound, left: census.Remains{Link: tap}, keeps: "another name"},
		"another sandbox's tap has the index":        {lease: bound, other: taker, left: census.Remains{Link: tap}, ended: true},
		"an earlier lease records a tap's index":     {lease: bound, other: stale, left: census.Remains{Link: tap}, keeps: "another name"},
		"another link has the index":                 {lease: bound, left: census.Remains{Link: port("veth9", another)}, ended: true},
		"another's has it, and its own is anew":      {lease: bound, other: taker, left: census.Remains{Link: port("veth9", another), Named: &anew}, keeps: "veth1 is a port of no bridge", unplugged: true},
		"its link was renamed, and no MAC is known":  {lease: noMAC, left: census.Remains{Link: port("veth9", another), Netns: true}, keeps: "another name"},
		"and it is behind that":                      {lease: noMAC, left: census.Remains{Link: houses}, keeps: "another name"},
		"and nothing of it is, nor its namespace":    {lease: noMAC, left: census.Remains{Link: port("veth9", another)}, ended: true},
		"on a bridge that is not looked after":       {lease: noMACReleased, left: census.Remains{Link: strange}, ended: true},
		"its link is made anew under its name":       {lease: bound, left: census.Remains{Named: loose}, there: true, unplugged: true},
		"or another's is":                            {lease: bound, other: &passed, left: census.Remains{Named: &later}, keeps: "veth1 is a port", passedOn: true},
		"its link is passed on with its name":        {lease: bound, other: &named, left: census.Remains{Link: port("veth1", another)}, keeps: "veth1 is a port", passedOn: true},
		"another's had its index under another name": {lease: bound, other: &had, left: census.Remains{Named: &later}, keeps: "veth1 is a port"},
		"a name alone is known, and is a port else":  {lease: older, left: census.Remains{Named: elsewhere}, keeps: "docker0"},

		"or held back by a new book":                     {lease: former, left: census.Remains{Behind: port("veth1", another)}, keeps: "which it was last seen behind"},
		"what it was seen behind is a port":              {lease: unnamed, left: census.Remains{Behind: port("veth1", mac)}, keeps: "which it was last seen behind"},
		"its guest chose another MAC":                    {lease: unnamed, left: census.Remains{Behind: port("veth1", another)}, keeps: "which it was last seen behind"},
		"or the port is another's, and it is released":   {lease: unnamedReleased, left: census.Remains{Behind: port("veth1", another)}},
		"it is another's":                                {lease: unnamed, other: taker, left: census.Remains{Behind: port("veth1", another)}, ended: true},
		"another's, as far as a lease without MAC knows": {lease: bare, other: taker, left: census.Remains{Behind: port("veth1", another)}, ended: true},
		"an earlier one of another records the port":     {lease: bare, other: stale, left: census.Remains{Behind: port("veth1", another), Netns: true}, keeps: "which it was last seen behind"},
		"a later one in its namespace does":              {lease: bare, other: inside, left: census.Remains{Behind: port("veth1", another), Netns: true}, keeps: "which it was last seen behind"},
		"nothing of it is behind that port":              {lease: bare, left: census.Remains{Behind: port("veth1", another)}, keeps: "which it was last seen behind"},
		"nor is, and it is released":                     {lease: bareReleased, left: census.Remains{Behind: port("veth1", another)}},
		"released, and it is behind that port":           {lease: bareReleased, left: census.Remains{Behind: houses}, keeps: "which it was last seen behind"},
		"released, and its namespace is there":           {lease: bareReleased, left: census.Remains{Behind: port("veth1", another), Netns: true}, keeps: "which it was last seen behind"},
		"what it was seen behind is unplugged":           {lease: unnamed, left: census.Remains{Behind: loose}, unplugged: true},
		"and it lives behind that, whosever the link is": {lease: unnamed, other: taker, left: census.Remains{Behind: &lives}, keeps: "10.8.0.2", unplugged: true},
		"another's that is unplugged":                    {lease: bare, other: taker, left: census.Remains{Behind: loose}, ended: true},
	} {
		t.Run(name, func(t *testing.T) {
			rows := []*ipam.Lease{&tt.lease}
			if tt.other != nil {
				rows = append(rows, tt.other)
			}
			x := NewLeases(rows)
			is := Trace{Lease: &tt.lease, At: x.LastKnown(&tt.lease, boot), Remains: tt.left, Leases: x}
			if says := is.Keeps(); (says == "") != (tt.keeps == "") || !strings.Contains(says, tt.keeps) {
				t.Errorf("blocked by %q, want %q", says, tt.keeps)
			}
			if says := is.Left(); (says != "") != ((tt.keeps != "" || tt.there) && !tt.passedOn) {
				t.Errorf("left: %q; its link is there: %v", says, tt.there)
			}
			if says := is.Unplugged(); (says != "") != tt.unplugged {
				t.Errorf("unplugged: %q, want %v", says, tt.unplugged)
			}
			if is.Ended() != tt.ended {
				t.Errorf("ended: %v", is.Ended())
			}
		})
	}
}

// What is known of where a sandbox was: nothing of another boot, and no name that its successor has.
func TestLastKnown(t *testing.T) {
	l := &ipam.Lease{ID: "1", Sandbox: "a", UID: "a-1", State: ipam.Releasing, HostInterface: "veth1", Netns: "/run/netns/a", Plug: ipam.Plug{Boot: "boot", Index: 7, Inode: 70, Behind: 6}}
	next := &ipam.Lease{ID: "2", Sandbox: "a", UID: "a-2", State: ipam.Bound, HostInterface: "veth1", Plug: ipam.Plug{Boot: "boot", Index: 9}}
	next.Created.Wall = next.Created.Wall.AddDate(1, 0, 0)
	next.Created.BootID = "later"
	whole := census.LastKnown{Name: "veth1", Link: 7, Behind: 6, Netns: "/run/netns/a", Inode: 70}
	for name, tt := range map[string]struct {
		rows []*ipam.Lease
		boot string
		want census.LastKnown
	}{
		"in its boot":        {[]*ipam.Lease{l}, "boot", whole},
		"in an era of it":    {[]*ipam.Lease{l}, "boot+1", whole},
		"in another":         {[]*ipam.Lease{l}, "other", census.LastKnown{}},
		"its name is passed": {[]*ipam.Lease{l, next}, "boot", census.LastKnown{Link: 7, Behind: 6, Netns: "/run/netns/a", Inode: 70}},
	} {
		if got := NewLeases(tt.rows).LastKnown(l, tt.boot); got != tt.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	l.Plug = ipam.Plug{}
	if got := NewLeases([]*ipam.Lease{l}).LastKnown(l, "boot"); got != (census.LastKnown{Name: "veth1"}) {
		t.Errorf("of no known boot: %+v", got)
	}
}
