package census

import "encoding/json"

// ParseEvidence returns the sightings that a row of the book records as its evidence;
// nil where it has none that can be read.
func ParseEvidence(evidence json.RawMessage) []Sighting {
	var seen []Sighting
	if json.Unmarshal(evidence, &seen) != nil {
		return nil
	}
	return seen
}
