package helper

import (
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/plumb"
)

// Which ports may be taken away as never reported, by what their owners' leases say.
func TestUnreported(t *testing.T) {
	now := time.Now()
	at := func(d time.Duration) *time.Time { at := now.Add(d); return &at }
	lease := func(s api.State, by *time.Time, host string) api.Lease {
		return api.Lease{UID: "u", Interface: "eth0", State: s, BindBy: by, HostInterface: host}
	}
	for name, c := range map[string]struct {
		of   []api.Lease
		goes bool
	}{
		"no lease":                  {nil, false},
		"reserved, in time":         {[]api.Lease{lease(api.Reserved, at(time.Minute), "")}, false},
		"reserved, just past":       {[]api.Lease{lease(api.Reserved, at(-time.Second), "")}, false},
		"reserved, long past":       {[]api.Lease{lease(api.Reserved, at(-time.Hour), "")}, true},
		"released, never bound":     {[]api.Lease{lease(api.Releasing, nil, "")}, true},
		"released, once bound":      {[]api.Lease{lease(api.Releasing, nil, "sb1")}, false},
		"bound by its containers":   {[]api.Lease{lease(api.Bound, nil, "")}, false},
		"bound":                     {[]api.Lease{lease(api.Bound, nil, "sb1")}, false},
		"paused":                    {[]api.Lease{lease(api.Paused, nil, "")}, false},
		"quarantined":               {[]api.Lease{lease(api.Quarantined, nil, "")}, false},
		"one of two families bound": {[]api.Lease{lease(api.Releasing, nil, ""), lease(api.Bound, nil, "sb1")}, false},
		"the other is bound":        {[]api.Lease{lease(api.Bound, nil, "sb1"), lease(api.Releasing, nil, "")}, false},
		"both released":             {[]api.Lease{lease(api.Releasing, nil, ""), lease(api.Releasing, nil, "")}, true},
	} {
		got := unreported(c.of, map[string]bool{plumb.HostName("u/eth0"): true}, now)
		if got["u/eth0"] != c.goes || len(got) > 1 {
			t.Errorf("%s: %v", name, got)
		}
		if got := unreported(c.of, map[string]bool{plumb.HostName("u/eth1"): true}, now); len(got) != 0 {
			t.Errorf("%s, and the port is another interface's: %v", name, got)
		}
	}
}
