package generate

import "strings"

// stopper passes streamed text through, but holds back a possible beginning of a stop string
// until more text decides.
type stopper struct {
	stops   []string
	include bool // a stop string is shown
	held    string
	passed  int // bytes of held in which no stop string ends
}

// pass appends text in which no stop string ends; one may begin in it.
func (s *stopper) pass(text string) {
	s.held += text
	s.passed = len(s.held)
}

// push appends text and returns the part that can be shown. stopped reports that a stop string
// is complete; the text before it has then been returned, including the string itself if
// include is set. If there are several, the one that ends first counts, however the text is
// divided into pieces.
func (s *stopper) push(text string) (show string, stopped bool) {
	s.held += text
	from, end := -1, len(s.held)+1
	for _, stop := range s.stops {
		skip := max(s.passed-len(stop)+1, 0)
		if i := strings.Index(s.held[skip:], stop); i >= 0 {
			i += skip
			if i+len(stop) < end || i+len(stop) == end && i < from {
				from, end = i, i+len(stop)
			}
		}
	}
	if from >= 0 {
		show = s.held[:from]
		if s.include {
			show = s.held[:end]
		}
		s.held, s.passed = "", 0
		return show, true
	}
	n := 0
	for _, stop := range s.stops {
		n = max(n, overlap(s.held, stop))
	}
	out := len(s.held) - n
	show, s.held, s.passed = s.held[:out], s.held[out:], max(s.passed-out, 0)
	return show, false
}

// flush returns the text held back.
func (s *stopper) flush() string {
	text := s.held
	s.held, s.passed = "", 0
	return text
}

// overlap returns the length of the longest suffix of text that is a proper prefix of stop.
func overlap(text, stop string) int {
	for n := min(len(text), len(stop)-1); n > 0; n-- {
		if strings.HasSuffix(text, stop[:n]) {
			return n
		}
	}
	return 0
}
