// Package poolfile reads a file of pools, as PUT /v1/pools takes them: TOML with a [[pool]] each,
// or JSON.
package poolfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/ipamd/ipamd/api"
)

// A Pool is one of a file.
type Pool struct {
	Name string `json:"name"`
	api.PoolRequest
}

// Parse reads the text of a file. Keys that a description does not have are refused, a file
// without a pool, a pool without a name, and prefixes that overlap.
func Parse(text []byte) ([]Pool, error) {
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		var tree map[string]any
		err := toml.Unmarshal(text, &tree)
		if err != nil {
			return nil, err
		}
		if text, err = json.Marshal(tree); err != nil {
			return nil, err
		}
	}
	var all struct {
		Pool []Pool `json:"pool"`
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&all); err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if len(all.Pool) == 0 {
		return nil, errors.New("has no [[pool]]")
	}
	for i, one := range all.Pool {
		if one.Name == "" {
			return nil, fmt.Errorf("pool[%d] has no name", i)
		}
		prefix, err := netip.ParsePrefix(one.Prefix)
		for _, other := range all.Pool[:i] {
			if theirs, bad := netip.ParsePrefix(other.Prefix); err == nil && bad == nil && prefix.Overlaps(theirs) {
				return nil, fmt.Errorf("pool %s, %s, overlaps pool %s, %s", one.Name, one.Prefix, other.Name, other.Prefix)
			}
		}
	}
	return all.Pool, nil
}
