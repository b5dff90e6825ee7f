package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/server"
	"github.com/ipamd/ipamd/server/servertest"
)

// G12: leases and changes come in pages as well, which together are the whole.
func TestG12Pages(t *testing.T) {
	s := speak(t, servertest.Start(t))
	for i := range 7 {
		allocate(t, s, fmt.Sprint("s", i%2, "-", i))
	}
	var pages []string
	for path := "/v1/leases?limit=3"; path != ""; {
		page := want[api.LeaseList](t, s, 200, "LeaseList", "GET", path, "")
		for _, l := range page.Leases {
			pages = append(pages, strings.TrimPrefix(l.Address, "10.8.64."))
		}
		pages = append(pages, ".")
		if path = ""; page.Next != "" {
			path = "/v1/leases?limit=3&after=" + page.Next
		}
	}
	if got := strings.Join(pages, " "); got != "2 3 4 . 5 6 7 . 8 ." {
		t.Errorf("pages of three: %s", got)
	}
	if page := want[api.LeaseList](t, s, 200, "LeaseList", "GET", "/v1/leases?limit=1&sandbox=s1-5&after=10.8.64.4", ""); len(page.Leases) != 1 || page.Next != "" {
		t.Errorf("the only one that matches: %+v", page)
	}
	for path, wrong := range map[string]string{"after=x": "after", "limit=0": "limit", "limit=10001": "limit"} {
		if a := s.ask(t, "GET", "/v1/leases?"+path, ""); a.status != 400 || a.err.Details["field"] != wrong {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	all := want[api.ChangeList](t, s, 200, "ChangeList", "GET", "/v1/changes", "")
	first := want[api.ChangeList](t, s, 200, "ChangeList", "GET", "/v1/changes?limit=4", "")
	rest := want[api.ChangeList](t, s, 200, "ChangeList", "GET", fmt.Sprint("/v1/changes?limit=10000&before=", first.Changes[3].Revision), "")
	if len(all.Changes) != 7 || len(first.Changes) != 4 || len(rest.Changes) != 3 || rest.Changes[0].Revision != first.Changes[3].Revision-1 {
		t.Errorf("%d changes, in pages %d and %d", len(all.Changes), len(first.Changes), len(rest.Changes))
	}
	if a := s.ask(t, "GET", "/v1/changes?before=0", ""); a.status != 400 || a.err.Details["field"] != "before" {
		t.Errorf("before=0: %d %s", a.status, a.body)
	}
}

// brokenHistory cannot be read behind its first step.
type brokenHistory struct{ server.Book }

func (b brokenHistory) History(ctx context.Context, q ipam.Query) ([]ipam.Change, error) {
	if q.Before <= 1000 {
		return nil, errors.New("the disk is gone")
	}
	var out []ipam.Change
	for i := range q.Limit {
		out = append(out, ipam.Change{Rev: int64(999 + q.Limit - i), Who: ipam.Who{Note: strings.Repeat("x", 1000)}})
	}
	return out, nil
}

func (b brokenHistory) Rev() int64 { return 5000 }

// G12: an answer that cannot be finished is cut, so that no peer takes its half
// for the whole; and one of which nothing was written is refused as any other.
func TestG12HalfAListingIsCut(t *testing.T) {
	rig := servertest.Start(t, func(c *server.Config) { c.Book = brokenHistory{c.Book} })
	s := speak(t, rig)
	if a := s.ask(t, "GET", "/v1/changes?before=7", ""); a.status != 500 || a.err.Code != api.Internal {
		t.Errorf("nothing written: %d %s", a.status, a.body)
	}
	resp, err := s.http.Get("http://ipamd/v1/changes")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) || len(body) == 0 {
		t.Errorf("%d bytes, then %v", len(body), err)
	}
	realtest.Eventually(t, soon, "it is in the log", func() bool { return rig.Log.Count("an answer was cut") == 1 })
}

// G12: large answers that a peer does not read are bounded, and what one leaves
// unread is refused to itself: others have theirs. Read or given up, they count
// no more.
func TestG12UnreadAnswersAreBounded(t *testing.T) {
	realtest.Root(t)
	report := api.Report{Actions: []api.Action{{Kind: "adopt", Reason: strings.Repeat("x", 6<<20)}}}
	s := speak(t, servertest.Start(t, func(c *server.Config) { c.LastPass = func() *api.Report { return &report } }))
	ask := func() (int, *http.Response) {
		c := dial(t, s.Rig)
		fmt.Fprint(c, "GET /v1/status HTTP/1.1\r\nHost: ipamd\r\n\r\n")
		if err := c.SetReadDeadline(time.Now().Add(soon)); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp
	}
	var unread []*http.Response
	for {
		status, resp := ask()
		if status == 429 {
			if resp.Header.Get("Retry-After") != "1" {
				t.Errorf("Retry-After is %q", resp.Header.Get("Retry-After"))
			}
			break
		}
		if unread = append(unread, resp); len(unread) > 32/6 {
			t.Fatalf("%d answers of 6 MiB are unread", len(unread))
		}
	}
	if a := s.ask(t, "GET", "/v1/status", ""); a.err.Details["limit"] != "answers" {
		t.Errorf("one more: %d %.200s", a.status, a.body)
	}
	want[api.Health](t, s, 200, "Health", "GET", "/healthz", "")
	allocate(t, s, "a")
	other := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if got := runPeer(t, s.Socket, other, getStatus); got != "200" {
		t.Errorf("another peer, beside %d unread answers: %s", len(unread), got)
	}
	// On a slow machine it may have been cut by now, as one that is not read.
	if _, err := io.Copy(io.Discard, unread[0].Body); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("one that is read at last: %v", err)
	}
	realtest.Eventually(t, soon, "there is room again", func() bool { return s.ask(t, "GET", "/v1/status", "").status == 200 })
}
