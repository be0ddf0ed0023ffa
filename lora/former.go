package lora

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/tensor"
)

// joinExperts converts the tensors of routed experts from the layout of transformers 4
// to that of the placement, as PEFT does. It concatenates the A of all experts and
// interleaves the B; the B of layers that were joined become block-diagonal. Incomplete
// sets are left alone, and reported as unmatched later.
func (a *Adapter) joinExperts(p *Placement) error {
	f, ok := formerByType[p.modelType]
	if !ok {
		return nil
	}
	for _, t := range p.Targets {
		if t.Kind != Parameter || a.has(t.Key(RoleA)) || a.has(t.Key(RoleB)) {
			continue
		}
		holder := keyPrefix + strings.Replace(t.holder(), ".mlp.", "."+f.block+".", 1)
		names := f.joined
		switch t.base() {
		case joinedParameter:
		case downParameter:
			names = []string{f.down}
		default: // the router, which has no number
			if holder+".lora_A.weight" != t.Key(RoleA) {
				a.rename(holder+".lora_A.weight", t.Key(RoleA))
				a.rename(holder+".lora_B.weight", t.Key(RoleB))
			}
			continue
		}
		for _, role := range []Role{RoleA, RoleB} {
			var from []string // expert after expert
			for e := range t.matrices() {
				for _, n := range names {
					from = append(from, fmt.Sprintf("%s.%d.%s.lora_%v.weight", holder, e, n, role))
				}
			}
			if err := a.join(t.Key(role), from, t.matrices(), role); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *Adapter) has(key string) bool {
	_, ok := a.tensors[key]
	return ok
}

func (a *Adapter) rename(from, to string) {
	t, ok := a.tensors[from]
	if !ok {
		return
	}
	a.names[slices.Index(a.names, from)] = to
	delete(a.tensors, from)
	a.tensors[to] = t
}

// join replaces the tensors of all experts by one, if they are complete and have the
// same shape and type.
func (a *Adapter) join(key string, from []string, experts int, role Role) error {
	all := make([]tensor.Tensor, len(from))
	each := len(from) / experts
	for i, name := range from {
		t, ok := a.tensors[name]
		if !ok || len(t.Shape) != 2 || t.DType != all[0].DType && i > 0 || i >= each && !slices.Equal(t.Shape, all[i%each].Shape) ||
			role == RoleA && i > 0 && t.Shape[1] != all[0].Shape[1] || t.DType.Bits()%8 != 0 {
			return nil
		}
		all[i] = t
	}
	var joined tensor.Tensor
	err := reading(func() error {
		if role == RoleA {
			joined = below(all)
		} else {
			joined = interleaved(all, experts)
		}
		return nil
	})
	if err != nil {
		return err
	}
	gone := make(map[string]bool, len(from))
	for _, name := range from {
		gone[name] = true
		delete(a.tensors, name)
	}
	a.names = append(slices.DeleteFunc(a.names, func(n string) bool { return gone[n] }), key)
	a.tensors[key] = joined
	return nil
}

// below concatenates the rows of all tensors.
func below(all []tensor.Tensor) tensor.Tensor {
	out := tensor.Tensor{DType: all[0].DType, Shape: []int{0, all[0].Shape[1]}}
	for _, t := range all {
		out.Shape[0] += t.Shape[0]
		out.Data = append(out.Data, t.Data...)
	}
	return out
}

// interleaved returns [out, rank·experts]: the blocks [out, rank] of one expert form a
// diagonal, and the columns of the experts alternate.
func interleaved(all []tensor.Tensor, experts int) tensor.Tensor {
	each := len(all) / experts
	rows, ranks := 0, 0
	for _, t := range all[:each] {
		rows, ranks = rows+t.Shape[0], ranks+t.Shape[1]
	}
	size := all[0].DType.Size()
	out := tensor.Tensor{DType: all[0].DType, Shape: []int{rows, ranks * experts}, Data: make([]byte, rows*ranks*experts*size)}
	for e := range experts {
		row, rank := 0, 0
		for _, t := range all[e*each:][:each] {
			for i := range t.Shape[0] {
				for k := range t.Shape[1] {
					to := ((row+i)*ranks + rank + k) * experts
					copy(out.Data[(to+e)*size:][:size], t.Data[(i*t.Shape[1]+k)*size:])
				}
			}
			row, rank = row+t.Shape[0], rank+t.Shape[1]
		}
	}
	return out
}
