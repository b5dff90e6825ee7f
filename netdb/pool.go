package netdb

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/ipamd/ipamd/ipam"
)

// leastRest is how long an address cools at least before another owner gets it.
func leastRest(p ipam.Policy) time.Duration {
	if p.Strict {
		return p.Cooldown
	}
	return p.CooldownMin
}

func encodeSpec(s *ipam.PoolSpec) (spec, hash string) {
	spec = string(asJSON(s))
	return spec, specHash(spec)
}

func specHash(spec string) string {
	sum := sha256.Sum256([]byte(spec))
	return hex.EncodeToString(sum[:])
}
