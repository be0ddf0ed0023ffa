package torchfile

import (
	"slices"
	"strconv"
)

// Operations of the machine on lists, dicts, the memo and objects.

func (m *machine) newContainer(k kind, keys, items []any) (*container, error) {
	if err := m.charge(costContainer + costItem*(len(keys)+len(items))); err != nil {
		return nil, err
	}
	return &container{kind: k, keys: slices.Clone(keys), items: slices.Clone(items)}, nil
}

func (m *machine) pushContainer(k kind, items []any) error {
	c, err := m.newContainer(k, nil, items)
	if err != nil {
		return err
	}
	return m.push(c)
}

func emptyOf(k kind) func(*machine) error {
	return func(m *machine) error { return m.pushContainer(k, nil) }
}

func (m *machine) tuple() error {
	items, err := m.popMark()
	if err != nil {
		return err
	}
	return m.pushContainer(kindTuple, items)
}

func tupleOf(n int) func(*machine) error {
	return func(m *machine) error {
		items, err := m.pop(n)
		if err != nil {
			return err
		}
		return m.pushContainer(kindTuple, items)
	}
}

func (m *machine) frozenSet() error {
	items, err := m.popMark()
	if err != nil {
		return err
	}
	return m.pushContainer(kindSet, items)
}

// topOf returns the last value, which must be a container of the given kind.
func (m *machine) topOf(k kind) (*container, error) {
	v, err := m.top()
	if err != nil {
		return nil, err
	}
	c, ok := v.(*container)
	if !ok || c.kind != k {
		return nil, m.fail(ErrPickle, kindOf(v), kindOf(&container{kind: k}))
	}
	return c, nil
}

// extend appends items, popped from the stack, to the list or set below them.
func (m *machine) extend(k kind, items []any) error {
	c, err := m.topOf(k)
	if err != nil {
		return err
	}
	if err := m.charge(costItem * len(items)); err != nil {
		return err
	}
	c.items = append(c.items, items...)
	return nil
}

func (m *machine) append() error {
	item, err := m.pop(1)
	if err != nil {
		return err
	}
	return m.extend(kindList, item)
}

func appendsTo(k kind) func(*machine) error {
	return func(m *machine) error {
		items, err := m.popMark()
		if err != nil {
			return err
		}
		return m.extend(k, items)
	}
}

// set adds alternating keys and values to a dict.
func (m *machine) set(pairs []any) error {
	d, err := m.topOf(kindDict)
	if err != nil {
		return err
	}
	if len(pairs)%2 != 0 {
		return m.fail(ErrPickle, "a key without a value", "")
	}
	if err := m.charge(costItem * len(pairs)); err != nil {
		return err
	}
	for i := 0; i < len(pairs); i += 2 {
		d.keys = append(d.keys, pairs[i])
		d.items = append(d.items, pairs[i+1])
	}
	return nil
}

func (m *machine) setItem() error {
	pair, err := m.pop(2)
	if err != nil {
		return err
	}
	return m.set(pair)
}

func (m *machine) setItems() error {
	pairs, err := m.popMark()
	if err != nil {
		return err
	}
	return m.set(pairs)
}

func getOf(bytes uint64) func(*machine) error {
	return func(m *machine) error {
		n, err := m.number(bytes)
		if err != nil {
			return err
		}
		if n < uint64(len(m.memo)) {
			return m.push(m.memo[n])
		}
		v, ok := m.rare[uint32(n)]
		if !ok {
			return m.fail(ErrPickle, "nothing in the memo at "+strconv.FormatUint(n, 10), "")
		}
		return m.push(v)
	}
}

func putOf(bytes uint64) func(*machine) error {
	return func(m *machine) error {
		n, err := m.number(bytes)
		if err != nil {
			return err
		}
		return m.setMemo(uint32(n))
	}
}

func (m *machine) memoize() error { return m.setMemo(uint32(len(m.memo) + len(m.rare))) }

// setMemo stores the last value in the memo. Python numbers memo entries from 0, so
// a slice is sufficient; entries after a gap go into a map, so that they do not
// make the slice long.
func (m *machine) setMemo(n uint32) error {
	v, err := m.top()
	if err != nil {
		return err
	}
	if n < uint32(len(m.memo)) {
		m.memo[n] = v
		return nil
	}
	if n == uint32(len(m.memo)) {
		if err := m.charge(costMemo); err != nil {
			return err
		}
		delete(m.rare, n)
		m.memo = append(m.memo, v)
		return nil
	}
	if err := m.charge(costMemoEntry); err != nil {
		return err
	}
	if m.rare == nil {
		m.rare = map[uint32]any{}
	}
	m.rare[n] = v
	return nil
}

func (m *machine) global() error {
	module, err := m.in.line()
	if err != nil {
		return m.readError(err)
	}
	name, err := m.in.line()
	if err != nil {
		return m.readError(err)
	}
	return m.pushGlobal(module, name)
}

func (m *machine) stackGlobal() error {
	v, err := m.pop(2)
	if err != nil {
		return err
	}
	module, ok1 := v[0].(string)
	name, ok2 := v[1].(string)
	if !ok1 || !ok2 {
		return m.fail(ErrPickle, kindOf(v[0])+" and "+kindOf(v[1]), "two strings")
	}
	return m.pushGlobal(module, name)
}

func (m *machine) pushGlobal(module, name string) error {
	g, err := lookUp(module, name)
	if err != nil {
		return m.place(err)
	}
	return m.push(g)
}

// arguments removes a tuple and the global below it from the stack.
func (m *machine) arguments() (global, []any, error) {
	v, err := m.pop(2)
	if err != nil {
		return "", nil, err
	}
	g, ok := v[0].(global)
	if !ok {
		return "", nil, m.fail(ErrPickle, kindOf(v[0])+" that is called", "a function or class")
	}
	args, ok := v[1].(*container)
	if !ok || args.kind != kindTuple {
		return "", nil, m.fail(ErrPickle, kindOf(v[1])+" as arguments of "+string(g), "a tuple")
	}
	return g, args.items, nil
}

func (m *machine) reduce() error {
	g, args, err := m.arguments()
	if err != nil {
		return err
	}
	call := callables[g]
	if call == nil {
		return m.fail(ErrGlobal, "a call of "+string(g), "a function that makes tensors or containers")
	}
	v, err := call(m, args)
	if err != nil {
		return m.place(err)
	}
	return m.push(v)
}

// newObject constructs an object in the way that old versions of PyTorch used
// for tensors, which BUILD then fills, and for parameters.
func (m *machine) newObject() error {
	g, args, err := m.arguments()
	if err != nil {
		return err
	}
	switch {
	case g == classParameter && len(args) > 0:
		t, ok := args[0].(*tensor)
		if !ok {
			return m.fail(ErrPickle, "a parameter of "+kindOf(args[0]), "one of a tensor")
		}
		return m.push(t)
	case tensorClasses[g] || g == classParameter:
		if err := m.charge(costTensor); err != nil {
			return err
		}
		return m.push(&tensor{})
	}
	return m.fail(ErrGlobal, "a new object of "+string(g), "a tensor")
}

// build sets the state of an object. The attributes of a dict, such as the
// _metadata of a state dict, are ignored, since they are not items.
func (m *machine) build() error {
	v, err := m.pop(1)
	if err != nil {
		return err
	}
	state := v[0]
	object, err := m.top()
	if err != nil {
		return err
	}
	switch object := object.(type) {
	case *tensor:
		return m.place(m.setState(object, state))
	case *container:
		if object.kind == kindDict {
			return nil
		}
	}
	return m.fail(ErrPickle, "state for "+kindOf(object), "it for a dict or a tensor")
}

func (m *machine) persistentID() error {
	v, err := m.pop(1)
	if err != nil {
		return err
	}
	id, ok := v[0].(*container)
	if !ok || id.kind != kindTuple || m.persistent == nil {
		return m.fail(ErrPickle, kindOf(v[0])+" as a persistent id", "the tuple of a storage")
	}
	s, err := m.persistent(id.items)
	if err != nil {
		return m.place(err)
	}
	if err := m.charge(costTensor); err != nil {
		return err
	}
	return m.push(s)
}
