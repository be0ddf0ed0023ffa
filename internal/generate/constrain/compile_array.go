package constrain

// array adds the states of an array. The items of prefixItems have their own states; later ones are counted.
func (c *compiler) array(f *facts, start, end int32) error {
	if f.maxItems >= 0 && f.minItems > f.maxItems {
		return nil
	}
	g := c.grammar
	named := 0
	for _, s := range f.parts {
		named = max(named, len(s.prefix))
	}
	if f.maxItems >= 0 {
		named = min(named, f.maxItems)
	}
	if err := c.spend(f.at(), 2*named+4); err != nil {
		return err
	}
	at := g.newState(false) // before an item, or at the end of an empty array
	g.connect(start, byLexeme(openArray(), at))
	if f.minItems == 0 {
		g.connect(at, byLexeme(closeArray(), end))
	}
	for i := range named {
		item, err := c.rule(f.item(i))
		if err != nil {
			return err
		}
		behind := g.newState(false)
		g.connect(at, byRule(item, behind))
		if i+1 >= f.minItems {
			g.connect(behind, byLexeme(closeArray(), end))
		}
		if i+1 == f.maxItems {
			return nil
		}
		at = g.newState(false)
		g.connect(behind, byLexeme(comma(), at))
	}
	if f.maxItems == 0 {
		return nil
	}
	item, err := c.rule(f.item(named))
	if err != nil {
		return err
	}
	c.counted(at, end, item, int32(f.minItems-named), int32(f.maxItems-named), f.maxItems >= 0)
	return nil
}

// item returns the constraints on item i.
func (f *facts) item(i int) conjunction {
	var all conjunction
	for _, s := range f.parts {
		switch {
		case i < len(s.prefix):
			all = all.with(s.prefix[i])
		case s.rest != nil:
			all = all.with(s.rest)
		}
	}
	return all
}

// counted adds the states of identical items, starting at state at. One state is for positions where more items must
// follow, and one for positions where the array may end.
func (c *compiler) counted(at, end, item, least, most int32, bounded bool) {
	g := c.grammar
	limit := max(least, 1)
	if bounded {
		limit = max(limit, most)
	} else {
		most = -1
	}
	few, enough, next := g.newState(false), g.newState(false), g.newState(false)
	for _, from := range []int32{at, next} {
		toFew := arc{rule: item, to: few, most: least - 2, items: 1, limit: limit}
		toEnough := arc{rule: item, to: enough, least: least - 1, most: -1, items: 1, limit: limit}
		if least >= 2 {
			g.connect(from, toFew)
		}
		g.connect(from, toEnough)
	}
	g.connect(few, byLexeme(comma(), next))
	more := byLexeme(comma(), next)
	if more.most = most; bounded {
		more.most = most - 1
	}
	if most != 1 {
		g.connect(enough, more)
	}
	g.connect(enough, byLexeme(closeArray(), end))
}
