"""The names of classes, for files that only number them."""

import string


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


CIFAR10 = _words("airplane automobile bird cat deer dog frog horse ship truck")
CIFAR100 = _words(
    """apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus
    butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab
    crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard
    lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom
    oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
    possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake
    spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor
    train trout tulip turtle wardrobe whale willow_tree wolf woman worm"""
)
STL10 = _words("airplane bird car cat deer dog horse monkey ship truck")
DIGITS = tuple(string.digits)
FASHION = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
_MERGED = string.digits + string.ascii_uppercase + "abdefghnqrt"  # where capitals look different
EMNIST = {
    "byclass": tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase),
    "bymerge": tuple(_MERGED),
    "balanced": tuple(_MERGED),
    "letters": tuple(string.ascii_lowercase),
    "digits": DIGITS,
    "mnist": DIGITS,
}
BIRDS = ("landbird", "waterbird")
TISSUE = ("normal", "tumor")
FMOW = _words(
    """airport airport_hangar airport_terminal amusement_park aquaculture archaeological_site barn
    border_checkpoint burial_site car_dealership construction_site crop_field dam debris_or_rubble
    educational_institution electric_substation factory_or_powerplant fire_station flooded_road
    fountain gas_station golf_course ground_transportation_station helipad hospital
    impoverished_settlement interchange lake_or_pond lighthouse military_facility
    multi-unit_residential nuclear_powerplant office_building oil_or_gas_facility park
    parking_lot_or_garage place_of_worship police_station port prison race_track railway_bridge
    recreational_facility road_bridge runway shipyard shopping_mall single-unit_residential
    smokestack solar_farm space_facility stadium storage_tank surface_mine swimming_pool toll_booth
    tower tunnel_opening waste_disposal water_treatment_facility wind_farm zoo"""
)
