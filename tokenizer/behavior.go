package tokenizer

import "slices"

// A behavior determines how matches become pieces when text is split at them.
type behavior int

const (
	removed            behavior = iota // matches are dropped
	isolated                           // each match is a piece of its own
	mergedWithPrevious                 // a match is appended to the previous piece
	mergedWithNext                     // a match is prepended to the next piece
	contiguous                         // adjacent matches form one piece
)

func readBehavior(name string) (behavior, error) {
	names := []string{"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}
	if i := slices.Index(names, name); i >= 0 {
		return behavior(i), nil
	}
	return 0, unsupported("split behavior", name, names...)
}

// cuts converts the spans of a pattern to pieces. It reuses the memory of
// spans.
func (b behavior) cuts(spans []span) []span {
	switch b {
	case removed:
		return slices.DeleteFunc(spans, func(sp span) bool { return sp.match })
	case isolated:
		return spans
	case mergedWithNext:
		slices.Reverse(spans)
		spans = merge(spans, func(match, previous bool) bool { return match && !previous })
		slices.Reverse(spans)
		return spans
	case mergedWithPrevious:
		return merge(spans, func(match, previous bool) bool { return match && !previous })
	default:
		return merge(spans, func(match, previous bool) bool { return match == previous })
	}
}

// merge joins each span with the previous one if joins returns true for them.
func merge(spans []span, joins func(match, previous bool) bool) []span {
	out := spans[:0]
	previous := false
	for _, sp := range spans {
		if n := len(out); n > 0 && joins(sp.match, previous) {
			out[n-1].start = min(out[n-1].start, sp.start)
			out[n-1].end = max(out[n-1].end, sp.end)
		} else {
			out = append(out, sp)
		}
		previous = sp.match
	}
	return out
}
