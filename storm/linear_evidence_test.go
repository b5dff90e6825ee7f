package storm_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/anishathalye/porcupine"
)

// evidence writes a history, a call a line, and a drawing of up to four parts
// of it that no order explains. It returns the folder, which stays: below dir,
// or where temporary files are.
func evidence(dir string, seed uint64, calls []call, r rest, keys []string) (where string, err error) {
	if where, err = os.MkdirTemp(dir, fmt.Sprintf("linear-seed-%d-", seed)); err != nil {
		return "", err
	}
	file, err := os.Create(filepath.Join(where, "history.jsonl"))
	if err != nil {
		return where, err
	}
	out := bufio.NewWriter(file)
	lines := json.NewEncoder(out)
	for _, c := range calls {
		err = errors.Join(err, lines.Encode(c))
	}
	err = errors.Join(err, out.Flush(), file.Close())
	model, all := r.model(), parts(calls)
	for _, key := range keys[:min(len(keys), 4)] {
		_, info := porcupine.CheckOperationsVerbose(model, drawn(all[key]), judging)
		err = errors.Join(err, porcupine.VisualizePath(model, info, filepath.Join(where, key+".html")))
	}
	return where, err
}

// drawn lets calls without an answer end with the last one that has one, or the
// drawing would be of them alone.
func drawn(ops []porcupine.Operation) []porcupine.Operation {
	ops = slices.Clone(ops)
	var last int64
	for _, op := range ops {
		last = max(last, op.Call)
		if op.Return != int64(never) {
			last = max(last, op.Return)
		}
	}
	for i := range ops {
		ops[i].Return = min(ops[i].Return, last+1)
	}
	return ops
}
