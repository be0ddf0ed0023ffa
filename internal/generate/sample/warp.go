package sample

import "math"

// warp applies temperature, top-k, top-p and min-p to the candidates, in this order. It rounds to float32 at the same
// steps as transformers, so that both keep the same tokens.
func (s *Sampler) warp() {
	most := s.best()
	t := float32(s.Temperature)
	for i := range s.kept {
		s.kept[i].score /= t
	}
	if math.IsInf(float64(most.score/t), 0) {
		// The temperature is too low for float32, so use its limit, greedy choice.
		s.kept = append(s.kept[:0], candidate{id: most.id})
		return
	}
	s.filter()
}

// filter applies top-k, top-p and min-p to scores that are divided by the temperature.
func (s *Sampler) filter() {
	if s.TopK > 0 && s.TopK < len(s.kept) {
		s.topK()
	}
	if s.TopP > 0 && s.TopP < 1 {
		s.topP()
	}
	if s.MinP > 0 {
		s.minP()
	}
}

// keep drops the candidates that fail the test.
func (s *Sampler) keep(test func(candidate) bool) {
	n := 0
	for _, c := range s.kept {
		if test(c) {
			s.kept[n] = c
			n++
		}
	}
	s.kept = s.kept[:n]
}

// topK finds the k-th largest score with a heap of the k largest so far, smallest on top.
func (s *Sampler) topK() {
	least := func(a, b candidate) bool { return a.score < b.score }
	s.heap = append(s.heap[:0], s.kept[:s.TopK]...)
	heapify(s.heap, least)
	for _, c := range s.kept[s.TopK:] {
		if c.score > s.heap[0].score {
			s.heap[0] = c
			siftDown(s.heap, 0, least)
		}
	}
	edge := s.heap[0].score
	s.keep(func(c candidate) bool { return c.score >= edge })
}

// topP drops a token if its probability, together with all less likely tokens, is at most 1 - top_p. Going down from
// the most likely token takes one heap pop per kept token and no sort of the vocabulary.
func (s *Sampler) topP() {
	top := s.best().score
	mass := s.mass(top)
	prob := func(c candidate) float64 { return float64(float32(weight(c.score, top) / mass)) }
	tail := 0.0
	for _, c := range s.kept {
		tail += prob(c)
	}
	before := func(a, b candidate) bool {
		return a.score > b.score || a.score == b.score && a.id < b.id
	}
	s.heap = append(s.heap[:0], s.kept...)
	heapify(s.heap, before)
	rest := float32(1 - s.TopP)
	edge := s.heap[0]
	for len(s.heap) > 0 {
		next := s.heap[0]
		if next != edge && float32(tail) <= rest {
			break
		}
		edge = next // the most likely token always stays
		tail -= prob(next)
		last := len(s.heap) - 1
		s.heap[0] = s.heap[last]
		s.heap = s.heap[:last]
		siftDown(s.heap, 0, before)
	}
	s.keep(func(c candidate) bool { return c == edge || before(c, edge) })
}

// minP drops the tokens that are less likely than min_p times the most likely one.
func (s *Sampler) minP() {
	top := s.best().score
	mass := s.mass(top)
	limit := float32(s.MinP) * float32(1/mass)
	s.keep(func(c candidate) bool {
		return c.score == top || float32(weight(c.score, top)/mass) >= limit
	})
}

func heapify(h []candidate, before func(a, b candidate) bool) {
	for i := len(h)/2 - 1; i >= 0; i-- {
		siftDown(h, i, before)
	}
}

// siftDown moves h[i] down in a heap that has the first element, in the order of before, on top.
func siftDown(h []candidate, i int, before func(a, b candidate) bool) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && before(h[child+1], h[child]) {
			child++
		}
		if !before(h[child], h[i]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}
