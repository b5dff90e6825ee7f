package owner

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/ipamd/ipamd/watchdog"
)

// An answer is what arrived of the answer about one sandbox.
type answer struct {
	status int
	body   []byte
	err    error // nothing arrived, or not the whole
}

// row is a sandbox as the owner spells it. Names are exact, each at most
// once, in valid UTF-8: the package decodes no closer guess.
type row struct {
	ID    string `json:"id"`
	State string `json:"state"`
}

func (r row) verdict() watchdog.Verdict {
	switch r.State {
	case "valid":
		return watchdog.Valid
	case "gone":
		return watchdog.Gone
	}
	return watchdog.Unknown
}

// judge is the one place that knows what an answer means. Only what is whole
// and clear is gone or valid; everything else is unknown, with its reason.
//
// Gone is a body that names the sandbox and says so, with 200, 404 or 410. A bare
// 404, an empty answer, null, {} or a proxy's page is what a server says that is
// misconfigured, half started or not the owner at all.
func judge(sandbox string, a answer) (watchdog.Verdict, error) {
	if a.err != nil {
		return watchdog.Unknown, a.err
	}
	status := fmt.Sprintf("%d %s", a.status, http.StatusText(a.status))
	switch a.status {
	case http.StatusOK, http.StatusNotFound, http.StatusGone:
	default:
		return watchdog.Unknown, fmt.Errorf("it answered %s", status)
	}
	if len(bytes.TrimSpace(a.body)) == 0 {
		return watchdog.Unknown, fmt.Errorf("it answered %s without a body that names the sandbox", status)
	}
	var r row
	if err := json.Unmarshal(a.body, &r); err != nil {
		return watchdog.Unknown, fmt.Errorf("read its answer, %s: %w", status, err)
	}
	if r.ID != sandbox {
		return watchdog.Unknown, fmt.Errorf("it answered %s about %.300q", status, r.ID)
	}
	v := r.verdict()
	switch {
	case v == watchdog.Unknown:
		return v, fmt.Errorf("it answered with the unknown state %.40q", r.State)
	case v == watchdog.Valid && a.status != http.StatusOK:
		return watchdog.Unknown, fmt.Errorf("it answered %s and valid at once", status)
	}
	return v, nil
}

// decodeList reads a list row by row, to its end.
func decodeList(from io.Reader) ([]watchdog.Owned, error) {
	d := jsontext.NewDecoder(from)
	first, err := d.ReadToken()
	switch {
	case errors.Is(err, io.EOF):
		return nil, io.ErrUnexpectedEOF
	case err != nil:
		return nil, err
	case first.Kind() != '[' && first.Kind() != 'n': // null is how many spell an empty list
		return nil, errors.New("it answered with something else than a list")
	}
	var list []watchdog.Owned
	if first.Kind() == '[' {
		for d.PeekKind() != ']' {
			var r row
			if err := json.UnmarshalDecode(d, &r); err != nil {
				return nil, err
			}
			if r.ID == "" {
				return nil, fmt.Errorf("row %d names no sandbox", len(list)+1)
			}
			list = append(list, watchdog.Owned{Sandbox: r.ID, Verdict: r.verdict()})
		}
		if _, err := d.ReadToken(); err != nil {
			return nil, err
		}
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		if err == nil {
			err = errors.New("it goes on behind the list")
		}
		return nil, err
	}
	return list, nil
}
