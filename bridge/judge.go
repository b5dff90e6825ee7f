package bridge

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// A judgement says whether addresses may be handed out on a bridge. It never changes.
type judgement struct {
	not   *NotReadyError // nil: it is ready for every gateway
	whole bool           // not is about the bridge itself, so about every gateway
	// gateways are those that it has to have; an error is why one of them is not there.
	gateways map[netip.Addr]*NotReadyError
}

// judge says from memory whether addresses may be handed out, as far as the
// bridge goes.
func (d *device) judge() {
	l, missing := d.link, d.missing()
	switch {
	case d.broken != nil:
		d.unready(fmt.Sprintf("%s could not be made ready (%v)", d.name, d.broken), d.broken)
	case l == nil:
		d.unready(d.name+" is missing", nil)
	case l.Kind == "":
		d.unready(l.Name+" is not a bridge but a network card", nil)
	case l.Kind != "bridge":
		d.unready(fmt.Sprintf("%s is not a bridge but a link of kind %s", l.Name, l.Kind), nil)
	case !l.Up():
		d.unready(l.Name+" is down", nil)
	case len(missing) != 0:
		reason, cause := d.without(missing)
		d.publish(&judgement{not: d.not(reason, cause, missing), gateways: d.perGateway(missing)})
	default:
		if d.judged.Load().not != nil {
			d.log.Info("bridge is ready", "bridge", l.Name)
		}
		d.judged.Store(&judgement{gateways: d.perGateway(nil)})
	}
}

// without says which gateways a bridge lacks, and why they could not be put there.
func (d *device) without(missing []netip.Prefix) (reason string, cause error) {
	var names []string
	for _, gw := range missing {
		names = append(names, gw.String())
		cause = errors.Join(cause, d.failed[gw])
	}
	reason = fmt.Sprintf("%s is without the gateway %s", d.name, strings.Join(names, " and "))
	if cause != nil {
		reason += " (" + strings.ReplaceAll(cause.Error(), "\n", "; ") + ")"
	}
	return reason, cause
}

// perGateway judges each wanted gateway. One may be wanted with two prefix lengths, while
// its pool was made smaller: it is there once both are.
func (d *device) perGateway(missing []netip.Prefix) map[netip.Addr]*NotReadyError {
	out := make(map[netip.Addr]*NotReadyError, len(d.want.Gateways))
	for _, gw := range d.want.Gateways {
		if out[gw.Addr()] != nil || !slices.Contains(missing, gw) {
			out[gw.Addr()] = out[gw.Addr()]
			continue
		}
		reason, cause := d.without([]netip.Prefix{gw})
		not := d.not(reason, cause, []netip.Prefix{gw})
		before := d.judged.Load()
		switch old := before.gateways[gw.Addr()]; {
		case old != nil:
			not.Since = old.Since
		case before.not != nil && !before.whole: // another gateway is missing for longer
			not.Since = time.Now()
		}
		out[gw.Addr()] = not
	}
	return out
}

// unready says that no address may be handed out, whichever pool it is of.
func (d *device) unready(reason string, cause error) {
	d.publish(&judgement{not: d.not(reason, cause, d.missing()), whole: true, gateways: d.lastGateways()})
}

func (d *device) lastGateways() map[netip.Addr]*NotReadyError {
	if j := d.judged.Load(); j != nil {
		return j.gateways
	}
	return nil
}

// not is an error of now, that began when the bridge ceased to be ready.
func (d *device) not(reason string, cause error, missing []netip.Prefix) *NotReadyError {
	now := &NotReadyError{Bridge: d.name, Reason: reason, Since: time.Now(), Repair: d.commands(missing), cause: cause}
	if old := d.judged.Load(); old != nil && old.not != nil {
		now.Since = old.not.Since
	}
	return now
}

func (d *device) publish(j *judgement) {
	old := d.judged.Swap(j)
	// That it has not been looked at at the start, nor is at the end, is no news.
	if old != nil && (old.not == nil || old.not.Reason != j.not.Reason) && !errors.Is(j.not.cause, ErrClosed) {
		d.log.Warn("bridge is not ready", "bridge", d.name, "reason", j.not.Reason)
	}
}

// Ready returns nil when addresses may be handed out whatever pool they are of, else a
// [NotReadyError]: the bridge is missing, not a bridge, down, or without a
// gateway. It reads memory and never waits; [Bridge.Settle] brings the memory
// up to date.
func (b *Bridge) Ready() error {
	if e := b.device.judged.Load().not; e != nil {
		return e
	}
	return nil
}

// ReadyFor returns nil when addresses may be handed out of a pool with that gateway, the zero
// address for a pool without one; else a [NotReadyError]. It differs from [Bridge.Ready] in
// that the gateways of others are not asked about. It reads memory and never waits.
func (b *Bridge) ReadyFor(gateway netip.Addr) error {
	j := b.device.judged.Load()
	if j.not == nil && !gateway.IsValid() {
		return nil
	}
	if j.whole {
		return j.not
	}
	not, wanted := j.gateways[gateway]
	switch {
	case !gateway.IsValid():
		return nil
	case !wanted:
		return &NotReadyError{Bridge: b.cfg.Name, Reason: fmt.Sprintf("the gateway %v has not been put on %s yet", gateway, b.cfg.Name), Since: time.Now()}
	case not != nil:
		return not
	}
	return nil
}
