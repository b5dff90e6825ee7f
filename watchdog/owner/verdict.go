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
	status  int
	body    []byte
	endless bool  // its end is the connection's end, so that no end is missed
	err     error // nothing arrived, or not the whole
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
// Gone are: no such sandbox (404), nothing to say about it (204, or a 200
// that is empty, null or {}), and the word itself.
func judge(sandbox string, a answer) (watchdog.Verdict, error) {
	if a.err != nil {
		return watchdog.Unknown, a.err
	}
	switch a.status {
	case http.StatusNotFound, http.StatusNoContent:
		return watchdog.Gone, nil
	case http.StatusOK:
	default:
		return watchdog.Unknown, fmt.Errorf("it answered %d %s", a.status, http.StatusText(a.status))
	}
	body := bytes.Trim(a.body, " \t\r\n")
	if len(body) == 0 {
		if a.endless {
			return watchdog.Unknown, errors.New("it answered nothing, or was cut off")
		}
		return watchdog.Gone, nil
	}
	value := jsontext.Value(body)
	if err := value.Compact(); err != nil {
		return watchdog.Unknown, fmt.Errorf("read its answer: %w", err)
	}
	if s := string(value); s == "null" || s == "{}" {
		return watchdog.Gone, nil
	}
	var r row
	if err := json.Unmarshal(value, &r); err != nil {
		return watchdog.Unknown, fmt.Errorf("read its answer: %w", err)
	}
	if r.ID != sandbox {
		return watchdog.Unknown, fmt.Errorf("it answered about %.300q", r.ID)
	}
	v := r.verdict()
	if v == watchdog.Unknown {
		return v, fmt.Errorf("it answered with the unknown state %.40q", r.State)
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
