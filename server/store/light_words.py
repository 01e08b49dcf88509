"""Words of everyday speech that say little about what a question is about.

Unlike stop words they are searched for, but they count for less: in a small course a plain word
may be as rare as a technical one.
"""

from __future__ import annotations

from server.store.concepts import stem

_WORDS = """
able accept across act actual add after afternoon afterwards again against ago agree ahead allow
almost alone along already alright always amount answer anyway apart appear apply approach area
around arrive ask available away back bad base basic basically become before begin behind believe
below best better between big bit both bother break bring build busy call care carry case catch
cause certain chance change cheap check clear close come common complete completely confuse
confused consider contain continue correct cost count couple cover create currently cut deal
decide depend describe despite detail during early easy effect either else end enough enter entire
especially even evening event everything everywhere exact example except expect expected explain
extra fact fail fall far fast feel fill final finally fine finish first fit five fix follow
following forget form forward four free friend front full further general generally gone good
great group guess guy half hand happen hard hear hello help hi high hold home hope hour however huge
idea important include inside instead interest job join keep keeps large last late later lead
learn least leave left less line list little live long look lose lot low main matter maybe meet
mention mind minute miss mix moment month morning move near necessary never new next nice night
nobody normal normally note nothing now number occur old once open order originally outside over
own pair part particular past pay people per person pick piece place plan plus point possible
prefer prepare present press pretty probably problem prove provide put question quick quickly
quite rather reach read ready real reason receive recommend regard related remain remember remove
repeat reply require rest result return right role room rule run save see seem select send
separate set several short show side silent similar simple simply since single situation six slow
small solve solved somehow sometimes soon sorry sort speak special spend stand start state stay
step still stop strange student style suddenly suggest suppose system takes talk task teach ten
term think third though three through time today together tomorrow top total totally touch toward
true try turn twice two type typical understand unless until usual usually value various visit
wait walk watch way week well whatever whenever wherever whether whole wish wonder wont word work
world worry worse wrong year yet
"""

LIGHT_WORDS = frozenset(map(stem, _WORDS.split()))
"""Their stems."""
